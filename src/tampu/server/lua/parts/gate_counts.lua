        -- counts: what the resources of lines let through.
        local ANY = 1e9
        local SLACK_US = 20000
        local NO_LIMIT = { limit = 0, count = 0 }
        local RUN, RATE, WAKE, WAIT = key .. ':run', key .. ':rate', key .. ':wake', key .. ':wait:'
        local WINDOW, OVER = key .. ':window:', key .. ':over'
        local classes = {
            ['>'] = { limit = 1, count = 0 }, ['!'] = NO_LIMIT, ['@'] = NO_LIMIT, ['>!'] = NO_LIMIT,
        }
        local changed, alarms, windowed, opened = {}, {}, {}, {}

        -- --- loading ----------------------------------------------------------------------------
        local function read_class(text)
            local limit, count, per, burst, strict =
                string.match(text or '', '^(%d+) (%d+) (%d+) (%d+) (%d)')
            if not limit then return NO_LIMIT end
            local class = { limit = tonumber(limit), count = tonumber(count), per = tonumber(per) }
            if class.count > 0 then
                class.strict = strict == '1'
                -- A smooth rate loses nothing if a job passes later than it could, by this slack: if it
                -- is less than a step, never more than count + burst pass in a window. With steps too
                -- short for that it is up to a hundredth of the time, and the steps are that much longer.
                local step = class.per / class.count
                local slack, more = math.min(SLACK_US, 0.99 * step), math.min(SLACK_US, class.per / 100)
                if slack < more then slack, step = more, (class.per + more) / class.count end
                class.step, class.ahead = step, (burst - 1) * step + slack
            end
            return class
        end
        local function load_classes(names)
            local kinds, missing = {}, {}
            for i = 1, #names do
                local at = find(names[i], ':', 1, true)
                local kind = at and sub(names[i], 1, at - 1) or names[i]
                kinds[i] = kind
                if not classes[kind] then
                    classes[kind] = NO_LIMIT
                    missing[#missing + 1] = kind
                end
            end
            if #missing > 0 then
                local found = ask_all('HMGET', key .. ':limits', missing)
                for i = 1, #missing do classes[missing[i]] = read_class(found[i]) end
            end
            return kinds
        end
        -- How many more jobs a resource lets through now.
        local function count_more(r)
            local more, class = r.limit > 0 and r.limit - r.runs or ANY, r.class
            if class.count == 0 and not r.closed then
                r.more = more > 0 and more or 0
                return
            end
            if r.closed then
                if r.closed > clock() then
                    more = 0
                else
                    r.closed = false
                    if r.own == '-' then opened[#opened + 1] = r end
                end
            end
            if r.used then
                more = math.min(more, class.count - r.used)
            elseif r.tat then
                more = math.min(more, floor((clock() + class.ahead - r.tat) / class.step) + 1)
            end
            r.more = more > 0 and more or 0
        end
        local function load_rates(smooth)
            if #smooth == 0 then return end
            local tats = ask_all('ZMSCORE', RATE, smooth)
            for i = 1, #smooth do
                local r, tat = known[smooth[i]], tonumber(tats[i] or 0)
                r.tat = tat > clock() and tat or clock()
                count_more(r)
            end
        end
        local function load_window(r)
            call('ZREMRANGEBYSCORE', WINDOW .. r.name, '-inf', string.format('%.0f', clock() - r.class.per))
            r.used = call('ZCARD', WINDOW .. r.name)
        end
        -- How many entries hold a resource, and the line that waits for it (true: several).
        local function read_run(text)
            local at = find(text, '+', 1, true)
            if at then return at == 2 and byte(text) - 48 or tonumber(sub(text, 1, at - 1)), sub(text, at + 1) end
            if sub(text, -1) == '*' then return tonumber(sub(text, 1, -2)), true end
            return tonumber(text), nil
        end
        local function load_closed(r, over)
            if over then
                r.own, r.till = string.match(over, '^(%S+) (%S+)$')
                if r.own ~= '-' then r.limit = tonumber(r.own) end
                r.closed = r.till * 1000
            end
            if sub(r.name, 1, 1) == '!' and pauses[sub(r.name, 3)] then
                r.closed = pauses[sub(r.name, 3)] * 1000
            end
        end
        local function load(names)
            local kinds, texts = load_classes(names), ask_all('HMGET', RUN, names)
            local over = has('o') and ask_all('HMGET', OVER, names)
            local may_be_closed, smooth = over or next(pauses), {}
            for i = 1, #names do
                local name, text, class = names[i], texts[i], classes[kinds[i]]
                -- `lines`: how many lines that have their turn now need it. Not more than eight fields:
                -- with nine the table takes twice the space, which is a fifth of the time for a line.
                -- Then have also `waits` and `changed`; some `closed`, `own`, `till`; `tat` (when a smooth
                -- rate is at rest again), `used` and `passed` (of a window).
                local r = { name = name, class = class, limit = class.limit, runs = 0, more = 0, lines = 0 }
                known[name] = r
                if text then r.runs, r.waits = read_run(text) end
                if may_be_closed then load_closed(r, over and over[i]) end
                if class.count == 0 and not r.closed then  -- as of most, without a call
                    if r.limit == 0 then r.more = ANY elseif r.limit > r.runs then r.more = r.limit - r.runs end
                elseif class.count > 0 and not class.strict then
                    smooth[#smooth + 1] = name
                else
                    if class.strict then load_window(r) end
                    count_more(r)
                end
            end
            load_rates(smooth)
        end
        counts.load = load
        function counts.resource(name)
            if not known[name] then load({ name }) end
            return known[name]
        end

        -- --- lines that wait for a resource -------------------------------------------------------
        -- Only of those that are not noted yet: a call for each job takes longer than to ask.
        local function note(r)
            r.changed = true
            changed[#changed + 1] = r
        end
        local function set_alarm(r)
            local at = r.closed
            if not at and r.class.count > 0 and (r.limit == 0 or r.runs < r.limit) then
                if r.tat then at = r.tat - r.class.ahead
                else
                    local first = call('ZRANGE', WINDOW .. r.name, 0, 0, 'WITHSCORES')[2]
                    at = first and first + r.class.per or clock()
                end
            end
            if at and at < FOREVER then
                alarms[#alarms + 1] = math.ceil(at / 1000)
                alarms[#alarms + 1] = r.name
            end
        end
        local function into_ring(line, tag)
            local level = sub(line, 1, 1)
            local list = fresh[level]
            if not list then
                list = {}
                fresh[level] = list
            end
            list[#list + 1] = tag or time_of(level)
            list[#list + 1] = line
        end
        function counts.flush(level)
            send_all('ZADD', RING .. level, fresh[level] or {})
            fresh[level] = nil
        end
        local function wake(r, most)
            if not r.changed then note(r) end
            if r.waits ~= true then
                into_ring(r.waits)
                r.waits = false
                return
            end
            local got = call('ZPOPMIN', WAIT .. r.name, most)
            for i = 1, #got, 2 do
                local at, tag = time_of(sub(got[i], 1, 1)), tonumber(got[i + 1])
                into_ring(got[i], tag > at and tag or at)
            end
            if #got < 2 * most then r.waits = false end
        end
        function counts.park(line, tag, r)
            if not r.changed then note(r) end
            local other = r.waits
            if not other then
                r.waits = line
            elseif other == true then
                call('ZADD', WAIT .. r.name, tag, line)
            elseif other ~= line then
                call('ZADD', WAIT .. r.name, tag, line, time_of(sub(other, 1, 1)), other)
                r.waits = true
            end
            if r.more == 0 and (r.closed or r.class.count > 0) then set_alarm(r) end
        end
        -- A line that leaves the ring lets others have what it does not use.
        function counts.pass_turn_on(resources, except)
            for i = 1, #resources do
                local r = resources[i]
                if r ~= except and r.waits and r.more > 0 then wake(r, 1) end
            end
        end
        -- `due`: resources whose time has come.
        function counts.wake_due(due)
            send_all('ZREM', WAKE, due)
            local new = {}
            for i = 1, #due do
                if not known[due[i]] then new[#new + 1] = due[i] end
            end
            if #new > 0 then load(new) end
            for i = 1, #due do
                local r = known[due[i]]
                if r.waits then
                    if r.more > 0 then wake(r, math.min(r.more, 256)) end
                    if r.waits then set_alarm(r) end
                end
            end
        end

        -- --- using and freeing --------------------------------------------------------------------
        -- How many of the jobs that a line wants to send may pass now.
        function counts.allow(resources, wanted)
            for i = 1, #resources do
                local r = resources[i]
                local share = r.lines > 1 and r.more > 1 and math.max(1, floor(r.more / r.lines)) or r.more
                r.lines = r.lines - 1
                if share < wanted then wanted = share end
            end
            return wanted
        end
        -- Returns what each of these jobs holds, the windows in which it counts, and a resource that is
        -- used up now; nil for none.
        function counts.use(resources, count, cost)
            local holds, windows, full
            for i = 1, #resources do
                local r = resources[i]
                if r.limit > 0 then
                    r.runs = r.runs + count
                    holds = holds and holds .. '|' .. r.name or r.name
                    if not r.changed then note(r) end
                end
                if r.used then
                    r.used = r.used + count
                    windows = windows or {}
                    windows[#windows + 1] = r
                elseif r.tat then
                    r.tat = r.tat + cost * r.class.step
                    if not r.changed then note(r) end
                end
                if r.class.count > 0 then count_more(r) else r.more = r.more - count end
                if r.more <= 0 and not full then full = r end
            end
            return holds, windows, full
        end
        function counts.note_passed(windows, id)
            for i = 1, #windows do
                local r = windows[i]
                if not r.passed then
                    r.passed = {}
                    windowed[#windowed + 1] = r
                end
                r.passed[#r.passed + 1] = clock()
                r.passed[#r.passed + 1] = id
            end
        end
        function counts.full_one(resources)
            for i = 1, #resources do
                if resources[i].more <= 0 then return resources[i] end
            end
        end
        -- How many of the settled entries held each resource, and the names of these. `texts` has what
        -- each entry held: mostly one name.
        local function count_freed(texts)
            local freed, names, distinct, count = {}, {}, {}, 0
            for i = 1, #texts do
                local text = texts[i]
                local before = freed[text]
                if before then
                    freed[text] = before + 1
                else
                    freed[text], count = 1, count + 1
                    distinct[count] = text
                end
            end
            for i = 1, count do
                local text = distinct[i]
                if find(text, '|', 1, true) then
                    for name in string.gmatch(text, '[^|]+') do
                        if not freed[name] then names[#names + 1] = name end
                        freed[name] = (freed[name] or 0) + freed[text]
                    end
                else
                    names[#names + 1] = text
                end
            end
            return freed, names
        end
        function counts.let_go(texts)
            local freed, names = count_freed(texts)
            local new, new_count = {}, 0
            for i = 1, #names do
                if not known[names[i]] then
                    new_count = new_count + 1
                    new[new_count] = names[i]
                end
            end
            if new_count > 0 then load(new) end
            for i = 1, #names do
                local r, count = known[names[i]], freed[names[i]]
                if count > r.runs then count = r.runs end
                if count > 0 then
                    r.runs = r.runs - count
                    if not r.changed then note(r) end
                    count_more(r)
                    if r.waits then
                        if r.more > 0 then wake(r, count) else set_alarm(r) end
                    end
                end
            end
        end
        -- What changes them from outside is made only when it is needed.
        setmetatable(counts, { __index = function(_, name)
            -- with parts/gate_changes
            return rawget(counts, name)
        end })

        -- --- writing what has changed ---------------------------------------------------------------
        -- Wakes the leader if something opens before all that it knows of, unless the leader asks itself.
        local function write_alarms()
            if #alarms == 0 then return end
            local first, known_first = alarms[1], call('ZRANGE', WAKE, 0, 0, 'WITHSCORES')[2]
            for i = 3, #alarms, 2 do first = math.min(first, alarms[i]) end
            send_all('ZADD', WAKE, alarms)
            if not rawget(gate, 'is_led') and (not known_first or first < tonumber(known_first)) then
                call('LPUSH', key .. ':bell', '1')
                call('LTRIM', key .. ':bell', 0, 0)
                call('PEXPIRE', key .. ':bell', 60000)
            end
        end
        function counts.write()
            local set, del, rates, texts, set_count, del_count = {}, {}, {}, {}, 0, 0
            for i = 1, #changed do
                local r = changed[i]
                if r.waits then
                    -- Each number becomes a text once: that takes as long as all the rest of this.
                    local text = texts[r.runs] or r.runs .. '+'
                    texts[r.runs] = text
                    text = r.waits == true and r.runs .. '*' or text .. r.waits
                    set[set_count + 1], set[set_count + 2] = r.name, text
                    set_count = set_count + 2
                elseif r.runs > 0 then
                    set[set_count + 1], set[set_count + 2] = r.name, r.runs
                    set_count = set_count + 2
                else
                    del_count = del_count + 1
                    del[del_count] = r.name
                end
                if r.tat and r.tat > clock() then
                    rates[#rates + 1] = r.tat
                    rates[#rates + 1] = r.name
                end
            end
            send_all('HSET', RUN, set)
            send_all('HDEL', RUN, del)
            if #rates > 0 then
                call('ZREMRANGEBYSCORE', RATE, '-inf', clock())
                send_all('ZADD', RATE, rates)
            end
            for i = 1, #windowed do
                local r = windowed[i]
                send_all('ZADD', WINDOW .. r.name, r.passed)
                call('PEXPIRE', WINDOW .. r.name, math.ceil(r.class.per / 1000) + 1000)
            end
            for i = 1, #opened do
                local r = opened[i]
                if known[r.name] == r and not r.closed and r.own == '-' then call('HDEL', OVER, r.name) end
            end
            write_alarms()
        end
