            -- admit_levels(room): let jobs of all levels through, in their turn.
            local EVERY = 16
            -- Lists that grow with each job have a count beside them: `#` searches for the end.
            local held, held_count = {}, 0  -- entry id, what it holds, ...
            local sorts_out = flags ~= '' and (has('e') or has('c') or next(pauses))
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
            -- By `find`, because `gmatch` makes an iterator and each name twice: a fifth of a microsecond.
            local function names_of(line)
                local bar, names = find(line, '|', 1, true), false
                local at = bar
                while at do
                    local after = find(line, '|', at + 1, true)
                    local name = sub(line, at + 1, after and after - 1)
                    if names then names[#names + 1] = name else names = { name } end
                    at = after
                end
                if next(pauses) and sub(line, 2, 2) == '/' then
                    local what = sub(line, 2, bar and bar - 1)
                    if pauses[what] then
                        names = names or {}
                        names[#names + 1] = '!:' .. what
                    end
                end
                return names
            end
            -- The resources of each line, false for none; and how many of these lines need each.
            local function resources_of(popped)
                local found, new = {}, {}
                for i = 1, #popped / 2 do
                    local names = names_of(popped[2 * i - 1])
                    found[i] = names
                    for j = 1, names and #names or 0 do
                        local name = names[j]
                        if known[name] == nil then
                            known[name] = false
                            new[#new + 1] = name
                        end
                    end
                end
                if #new > 0 then count_resources().load(new) end
                for i = 1, #found do
                    local names = found[i]
                    for j = 1, names and #names or 0 do
                        local r = known[names[j]]
                        names[j] = r
                        r.lines = r.lines + 1
                    end
                end
                return found
            end
            local function pass_in_turn(lists, count, longest, holds, windows)
                for n = 1, longest do
                    for i = 1, count do
                        local members = lists[i]
                        local member = members and members[n]
                        if member then pass(member, holds[i], windows[i]) end
                    end
                end
            end
            local function pass_in_order(lists, order, holds, windows)
                local places = {}
                for n = 1, #order do
                    local i = order[n]
                    local place = (places[i] or 0) + 1
                    local member = lists[i] and lists[i][place]
                    places[i] = place
                    if member then pass(member, holds[i], windows[i]) end
                end
            end
            -- Lines leave the ring: those with jobs left wait for what they lack (`fulls`), which is asked
            -- once for all of them; mostly each has some, or there is only one line.
            local function leave_ring(popped, found, stopped, tags, fulls)
                local lists = {}
                for n = 1, #stopped do
                    local i = stopped[n]
                    if fulls[i] then lists[#lists + 1] = LINE .. popped[2 * i - 1] end
                end
                local all_left = lists[1] and call('EXISTS', unpack(lists)) == #lists
                for n = 1, #stopped do
                    local i = stopped[n]
                    local line, full, resources = popped[2 * i - 1], fulls[i], found[i]
                    if full and (all_left or call('EXISTS', LINE .. line) == 1) then counts.park(line, tags[i], full) end
                    if resources and (resources[2] or resources[1] ~= full) then
                        counts.pass_turn_on(resources, full)
                    end
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
                    -- Without weights each line may send as many, and the first ones the rest.
                    local each, rest = floor(left / count), left % count
                    if is_weighed then
                        weights = sort_jobs().weights_of(popped)
                        wanted, order = sorting.share_by_weight(popped, weights, left)
                    end
                    local lists, holds, windows, back, longest, sum = {}, {}, {}, {}, 0, 0
                    local stopped, tags, fulls, back_count, stopped_count = {}, {}, {}, 0, 0
                    for i = 1, count do
                        local line, tag, resources = popped[2 * i - 1], tonumber(popped[2 * i]), found[i]
                        local most, step = i <= rest and each + 1 or each, 1
                        if weights then most, step = wanted[i], 1 / weights[i] end
                        if resources then most = counts.allow(resources, most) end
                        local members = most > 0 and call('LPOP', LINE .. line, most) or {}
                        local taken = #members
                        local cost, full = taken, nil
                        if sorts_out and taken > 0 then
                            members, cost, full = sort_jobs().sort_out(line, members, tag, resources, pass)
                        end
                        local sent, first_full = #members, nil
                        if sent > 0 then
                            if resources then holds[i], windows[i], first_full = counts.use(resources, sent, cost) end
                            lists[i] = members
                            sum = sum + sent
                            if sent > longest then longest = sent end
                            if tag + (sent - 1) * step > at then at = tag + (sent - 1) * step end
                            tag = tag + sent * step
                        elseif resources then
                            first_full = counts.full_one(resources)
                        end
                        -- With fewer than it wanted to send, the line is empty.
                        if taken == most then full = full or first_full end
                        if full or taken == 0 and most > 0 then
                            -- It must wait; or it was empty when its turn came, and is forgotten.
                            stopped_count = stopped_count + 1
                            stopped[stopped_count], tags[i], fulls[i] = i, tag, full
                        else
                            back[back_count + 1], back[back_count + 2] = tag, line
                            back_count = back_count + 2
                        end
                    end
                    if stopped_count > 0 then leave_ring(popped, found, stopped, tags, fulls) end
                    if order then pass_in_order(lists, order, holds, windows)
                    else pass_in_turn(lists, count, longest, holds, windows) end
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
