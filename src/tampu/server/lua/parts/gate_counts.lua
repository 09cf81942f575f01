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
        -- What was read from a text or written as one, by it: that takes long, and most lines have the same.
        local run_counts, run_waits, tag_texts, tags = {}, {}, {}, {}

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
        -- How many entries hold a resource, and what waits for it: true for several lines, or the text of one.
        local function read_run(text)
            local count = run_counts[text]
            if not count then
                local at = find(text, '[-+*]') or 0
                count = tonumber(sub(text, 1, at - 1))
                run_counts[text] = count
                run_waits[text] = sub(text, at, at) == '*' or at > 0 and sub(text, at) or nil
            end
            return count, run_waits[text]
        end
        local function write_run(count, waits)
            if not waits then return count end
            return waits == true and count .. '*' or count .. waits
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
        local function load_new(names)
            local new = {}
            for i = 1, #names do
                if not known[names[i]] then new[#new + 1] = names[i] end
            end
            if #new > 0 then load(new) end
        end
        function counts.resource(name)
            load_new({ name })
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
        -- A line that has waited comes up with the tag that it had, or at the time of its level if that is
        -- later. At the time alone, lines that wait after each job would overtake all others.
        -- Returns the list for the ring of its level, and the tag that it has there.
        local function place_in_ring(line, tag)
            local level = sub(line, 1, 1)
            local list, at, own = fresh[level], time_of(level), tags[tag]
            if not list then
                list = {}
                fresh[level] = list
            end
            if not own then
                own = tonumber(tag)
                tags[tag] = own
            end
            return list, own > at and own or at
        end
        local function into_ring(line, tag)
            local list, at = place_in_ring(line, tag)
            local count = #list
            list[count + 1], list[count + 2] = at, line
        end
        -- The text of the line that waits for a resource: +<tag> <line>. If its name ends with that of the
        -- resource, this is left out, and - comes before the tag: most lines have the same short text then.
        local function text_of(line, tag, name)
            local texts, cut = tag_texts[tag], #line - #name
            if not texts then
                texts = { tag = string.format('%.17g ', tag) }
                tag_texts[tag] = texts
            end
            if byte(line, cut) ~= 124 or sub(line, cut + 1) ~= name then return '+' .. texts.tag .. line end
            if cut > 2 then return '-' .. texts.tag .. sub(line, 1, cut - 1) end
            local level = byte(line)  -- without a key, as most: there are few of these texts
            local text = texts[level]
            if not text then
                text = '-' .. texts.tag .. sub(line, 1, 1)
                texts[level] = text
            end
            return text
        end
        -- The line of such a text, and its tag as a text.
        local function line_of(text, name)
            local at = find(text, ' ', 1, true)
            local line, tag = sub(text, at + 1), sub(text, 2, at - 1)
            return byte(text) == 45 and line .. '|' .. name or line, tag
        end
        function counts.flush(level)
            send_all('ZADD', RING .. level, fresh[level] or {})
            fresh[level] = nil
        end
        local function wake(r, most)
            if not r.changed then note(r) end
            if r.waits ~= true then
                into_ring(line_of(r.waits, r.name))
                r.waits = false
                return
            end
            local got = call('ZPOPMIN', WAIT .. r.name, most)
            for i = 1, #got, 2 do into_ring(got[i], got[i + 1]) end
            if #got < 2 * most then r.waits = false end
        end
        function counts.park(line, tag, r)
            if not r.changed then note(r) end
            if not r.waits then
                r.waits = text_of(line, tag, r.name)
            elseif r.waits == true then
                call('ZADD', WAIT .. r.name, tag, line)
            else
                local other, other_tag = line_of(r.waits, r.name)
                if other ~= line then
                    call('ZADD', WAIT .. r.name, tag, line, other_tag, other)
                    r.waits = true
                end
            end
            if r.more == 0 and (r.closed or r.class.count > 0) then set_alarm(r) end
        end
        -- A line that leaves the ring lets others have what it does not use.
        function counts.pass_turn_on(r)
            if r.waits and r.more > 0 then wake(r, 1) end
        end
        -- `due`: resources whose time has come.
        function counts.wake_due(due)
            send_all('ZREM', WAKE, due)
            load_new(due)
            for i = 1, #due do
                local r = known[due[i]]
                if r.waits then
                    if r.more > 0 then wake(r, math.min(r.more, 256)) end
                    if r.waits then set_alarm(r) end
                end
            end
        end

        -- --- using and freeing --------------------------------------------------------------------
        -- How many of the jobs that a line wants to send may pass now, as far as this resource goes.
        function counts.allow(r, wanted)
            local share = r.lines > 1 and r.more > 1 and math.max(1, floor(r.more / r.lines)) or r.more
            r.lines = r.lines - 1
            return share < wanted and share or wanted
        end
        -- Jobs of a line pass that need this resource; whether each of them holds it until it is settled.
        function counts.use(r, count, cost)
            local is_held = r.limit > 0
            if is_held then r.runs = r.runs + count end
            if r.used then r.used = r.used + count elseif r.tat then r.tat = r.tat + cost * r.class.step end
            if (is_held or r.tat) and not r.changed then note(r) end
            if r.class.count > 0 then count_more(r) else r.more = r.more - count end
            return is_held
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
        -- with parts/gate_freeing
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
            local set, del, rates, set_count, del_count = {}, {}, {}, 0, 0
            for i = 1, #changed do
                local r = changed[i]
                if r.waits or r.runs > 0 then
                    set[set_count + 1], set[set_count + 2] = r.name, write_run(r.runs, r.waits)
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
