            -- admit_levels(room): let jobs of all levels through, in their turn.
            local EVERY = 16
            -- Lists that grow with each job have a count beside them: `#` searches for the end.
            local held, held_count = {}, 0  -- entry id, what it holds, ...
            local has_pauses = next(pauses) ~= nil
            local sorts_out = flags ~= '' and (has('e') or has('c') or has_pauses)
            local is_weighed = flags ~= '' and has('w')
            local sorting
            local function sort_jobs()
                if sorting then return sorting end
                sorting = {}
                -- with parts/gate_sorting
                return sorting
            end
            local function pass(member, holds, windows, expired)
                local name, envelope, extras = split_job(member)
                local id
                if extras ~= '' and name ~= '' and not expired then  -- without a call, as of most jobs
                    id = call('XADD', stream, '*', 'd', envelope, 'n', name, 'x', extras)
                else
                    id = add_entry(envelope, name, extras, expired)
                end
                if holds then
                    held[held_count + 1], held[held_count + 2] = id, holds
                    held_count = held_count + 2
                end
                if windows then counts.note_passed(windows, id) end
            end
            -- The name of the one resource that a line needs (false: none), or nil and a list of several.
            local function names_of(line)
                local bar = find(line, '|', 1, true)
                local paused = has_pauses and sub(line, 2, 2) == '/' and sub(line, 2, bar and bar - 1)
                local rest = bar and sub(line, bar + 1) or false
                if not (paused and pauses[paused]) then
                    if not rest or not find(rest, '|', 1, true) then return rest end
                else
                    rest = (rest and rest .. '|' or '') .. '!:' .. paused
                end
                local names = {}
                for name in string.gmatch(rest, '[^|]+') do names[#names + 1] = name end
                return nil, names
            end
            -- The resource of each line: false for none, a list of several; and how many of these lines need each.
            local function resources_of(popped)
                local found, new, new_count = {}, {}, 0
                local function note_name(name)
                    if known[name] == nil then
                        known[name], new_count = false, new_count + 1
                        new[new_count] = name
                    end
                end
                for i = 1, #popped / 2 do
                    local name, names = names_of(popped[2 * i - 1])
                    found[i] = names or name
                    for j = 1, names and #names or 0 do note_name(names[j]) end
                    if name and known[name] == nil then note_name(name) end
                end
                if new_count > 0 then count_resources().load(new) end
                for i = 1, #found do
                    local names = found[i]
                    local r = known[names]
                    if r then
                        found[i], r.lines = r, r.lines + 1
                    elseif names then
                        for j = 1, #names do
                            r = known[names[j]]
                            names[j], r.lines = r, r.lines + 1
                        end
                    end
                end
                return found
            end
            local function allow_all(resources, wanted)
                for i = 1, #resources do wanted = counts.allow(resources[i], wanted) end
                return wanted
            end
            -- Returns what each of these jobs holds, and the windows in which it counts; nil for none.
            local function use_all(resources, count, cost)
                local holds, windows
                for i = 1, #resources do
                    local r = resources[i]
                    if counts.use(r, count, cost) then holds = holds and holds .. '|' .. r.name or r.name end
                    if r.used then
                        windows = windows or {}
                        windows[#windows + 1] = r
                    end
                end
                return holds, windows
            end
            local function full_one(resources)
                if resources.name then return resources.more <= 0 and resources or nil end
                for i = 1, #resources do
                    if resources[i].more <= 0 then return resources[i] end
                end
            end
            -- The first job of each line is in `firsts`, all of them in `lists` if it sends more than one.
            local function pass_in_turn(firsts, lists, count, longest, holds, windows)
                for i = 1, count do
                    local member = firsts[i]
                    if member then pass(member, holds[i], windows[i]) end
                end
                for n = 2, longest do
                    for i = 1, count do
                        local members = lists[i]
                        local member = members and members[n]
                        if member then pass(member, holds[i], windows[i]) end
                    end
                end
            end
            local function pass_in_order(firsts, lists, order, holds, windows)
                local places = {}
                for n = 1, #order do
                    local i = order[n]
                    local place = (places[i] or 0) + 1
                    local member = place == 1 and firsts[i] or lists[i] and lists[i][place]
                    places[i] = place
                    if member then pass(member, holds[i], windows[i]) end
                end
            end
            local function pass_turn_on(resources, except)
                if resources.name then return counts.pass_turn_on(resources) end
                for i = 1, #resources do
                    if resources[i] ~= except then counts.pass_turn_on(resources[i]) end
                end
            end
            -- Lines leave the ring: those with jobs left wait for what they lack (`fulls`), which is asked
            -- once for all of them; mostly each has some, or there is only one line.
            local function leave_ring(popped, found, stopped, tags, fulls, lists)
                local all_left, asked = lists[1] and call('EXISTS', unpack(lists)) == #lists, 0
                for n = 1, #stopped do
                    local i = stopped[n]
                    local line, full, resources = popped[2 * i - 1], fulls[i], found[i]
                    if full then
                        asked = asked + 1
                        if all_left or call('EXISTS', lists[asked]) == 1 then counts.park(line, tags[i], full) end
                    end
                    if resources and resources ~= full then pass_turn_on(resources, full) end
                end
            end
            local function admit_level(level, room)
                local ring, at, before = RING .. level, time_of(level), through
                while room > through - before do
                    local left = room - (through - before)
                    if fresh[level] then counts.flush(level) end
                    local popped = call('ZPOPMIN', ring, left)
                    local count = #popped / 2
                    if count == 0 then break end
                    local found, wanted, weights, order = resources_of(popped), nil, nil, nil
                    local last_text, last_tag  -- many lines have the same
                    -- Without weights each line may send as many, and the first ones the rest.
                    local each, rest = floor(left / count), left % count
                    if is_weighed then
                        weights = sort_jobs().weights_of(popped)
                        wanted, order = sorting.share_by_weight(popped, weights, left)
                    end
                    local firsts, lists, holds, windows, back, longest, sum = {}, {}, {}, {}, {}, 0, 0
                    local stopped, tags, fulls, held_up = {}, {}, {}, {}
                    local back_count, stopped_count, held_up_count = 0, 0, 0
                    for i = 1, count do
                        local line, tag, resources = popped[2 * i - 1], popped[2 * i], found[i]
                        local list, most, step = LINE .. line, i <= rest and each + 1 or each, 1
                        local name = resources and resources.name  -- of the one that most lines need, without a list
                        if tag ~= last_text then last_text, last_tag = tag, tonumber(tag) end
                        tag = last_tag
                        if weights then most, step = wanted[i], 1 / weights[i] end
                        if name then most = counts.allow(resources, most)
                        elseif resources then most = allow_all(resources, most) end
                        local first, members, taken, full = nil, nil, 0, nil
                        if most == 1 then
                            first = call('LPOP', list)  -- without a list, which takes a third less time
                            taken = first and 1 or 0
                        elseif most > 1 then
                            members = call('LPOP', list, most)
                            if members then first, taken = members[1], #members end
                        end
                        local sent, cost = taken, taken
                        if sorts_out and taken > 0 then
                            members, cost, full = sort_jobs().sort_out(line, members or { first }, tag, resources, pass)
                            first, sent = members[1], #members
                        end
                        if sent > 0 then
                            -- Only what there is: to store nil would make a field all the same.
                            if name then
                                if counts.use(resources, sent, cost) then holds[i] = name end
                                if resources.used then windows[i] = { resources } end
                            elseif resources then
                                local all, counted_in = use_all(resources, sent, cost)
                                if all then holds[i] = all end
                                if counted_in then windows[i] = counted_in end
                            end
                            firsts[i] = first
                            if members then lists[i] = members end
                            sum = sum + sent
                            if sent > longest then longest = sent end
                            if tag + (sent - 1) * step > at then at = tag + (sent - 1) * step end
                            tag = tag + sent * step
                        end
                        -- With fewer than it wanted to send, the line is empty.
                        if resources and taken == most then full = full or full_one(resources) end
                        if full or taken == 0 and most > 0 then
                            -- It must wait; or it was empty when its turn came, and is forgotten.
                            stopped_count = stopped_count + 1
                            stopped[stopped_count], tags[i], fulls[i] = i, tag, full or false
                            if full then
                                held_up_count = held_up_count + 1
                                held_up[held_up_count] = list
                            end
                        else
                            back[back_count + 1], back[back_count + 2] = tag, line
                            back_count = back_count + 2
                        end
                    end
                    if stopped_count > 0 then leave_ring(popped, found, stopped, tags, fulls, held_up) end
                    if order then pass_in_order(firsts, lists, order, holds, windows)
                    else pass_in_turn(firsts, lists, count, longest, holds, windows) end
                    through = through + sum
                    if at > times[level] then
                        times[level] = at
                        fields['v' .. level] = at
                    end
                    if back_count > 0 then call('ZADD', ring, unpack(back)) end
                end
                return through - before
            end

            -- --- levels -------------------------------------------------------------------------
            -- The levels in which lines wait for their turn, highest first.
            local function open_levels()
                local open = {}
                for i = 1, #levels do
                    local level = sub(levels, i, i)
                    if fresh[level] then counts.flush(level) end
                    if #levels == 1 or call('EXISTS', RING .. level) == 1 then open[#open + 1] = level end
                end
                return open
            end
            -- Every so many jobs one of a lower level passes: of the one that has waited longest.
            local function help_lower(open, room)
                local every = tonumber(call('HGET', key, 'every') or EVERY)
                if every == 0 then return end
                local turn, before = tonumber(call('HGET', key, 'turn') or 0), through
                local spare, lower = floor((turn + room - before) / every), {}
                admit_level(open[1], room - before - spare)
                for i = 2, #open do
                    lower[#lower + 1] = { tonumber(call('HGET', key, 'l' .. open[i]) or 0), open[i] }
                end
                table.sort(lower, function(a, b) return a[1] < b[1] end)
                for i = 1, #lower do
                    local most = math.min(math.ceil(spare / (#lower - i + 1)), room - through)
                    local got = most > 0 and admit_level(lower[i][2], most) or 0
                    if got > 0 then call('HSET', key, 'l' .. lower[i][2], clock()) end
                    spare = spare - got
                end
                call('HSET', key, 'turn', (turn + through - before) % every)
            end
            local function admit_levels(room)
                repeat
                    local open, before = open_levels(), through
                    if #open > 1 then help_lower(open, room) end
                    for i = 1, #open do
                        if room > through then admit_level(open[i], room - through) end
                    end
                    -- Lines that were woken meanwhile may be on a level that was passed already.
                until through >= room or through == before or not next(fresh)
                if held_count > 0 then
                    call('HSET', HELD, unpack(held))
                    if not has('h') then note_flag('h') end
                end
            end
