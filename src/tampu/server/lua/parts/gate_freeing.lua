        -- let_go(ids): what settled entries held is free.
        -- How many of them held each resource, and the names of these. A text is what one held, mostly one
        -- name; false: nothing.
        local function count_freed(texts)
            local freed, names, count, several = {}, {}, 0, {}
            for i = 1, #texts do
                local text = texts[i]
                local before = freed[text]
                if before then
                    freed[text] = before + 1
                elseif text then
                    freed[text] = 1
                    if find(text, '|', 1, true) then
                        several[#several + 1] = text
                    else
                        count = count + 1
                        names[count] = text
                    end
                end
            end
            for i = 1, #several do
                local text = several[i]
                for name in string.gmatch(text, '[^|]+') do
                    if not freed[name] then names[#names + 1] = name end
                    freed[name] = (freed[name] or 0) + freed[text]
                end
            end
            return freed, names
        end
        -- Resources that only limit how many run, and for which one line waits or none, are freed without
        -- loading them, which is most of the work. Returns the names of the others.
        local function free_plain(freed, names)
            local kinds, texts = load_classes(names), ask_all('HMGET', RUN, names)
            local others, set, del, set_count, del_count = {}, {}, {}, 0, 0
            local last, line, list, at, is_start  -- of the line that waits: mostly the same for many names
            for i = 1, #names do
                local name, class, runs, waits = names[i], classes[kinds[i]], 0, nil
                if texts[i] then runs, waits = read_run(texts[i]) end
                if class.count > 0 or waits == true or known[name] then
                    others[#others + 1] = name
                elseif runs > 0 then
                    runs = math.max(0, runs - freed[name])
                    if waits and (class.limit == 0 or runs < class.limit) then
                        if waits ~= last then
                            local tag
                            last, is_start = waits, byte(waits) == 45
                            line, tag = line_of(waits, '')
                            list, at = place_in_ring(line, tag)
                        end
                        local count = #list
                        list[count + 1], list[count + 2] = at, is_start and line .. name or line
                        waits = nil
                    end
                    if waits or runs > 0 then
                        set[set_count + 1], set[set_count + 2] = name, write_run(runs, waits)
                        set_count = set_count + 2
                    else
                        del_count = del_count + 1
                        del[del_count] = name
                    end
                end
            end
            send_all('HSET', RUN, set)
            send_all('HDEL', RUN, del)
            return others
        end
        function counts.let_go(ids)
            local freed, names = count_freed(call('HMGET', HELD, unpack(ids)))
            if not names[1] then return end
            call('HDEL', HELD, unpack(ids))
            if not has('o') then names = free_plain(freed, names) end
            load_new(names)
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
