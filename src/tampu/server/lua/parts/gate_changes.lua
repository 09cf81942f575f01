            -- reopen(names): these let through what has changed for them from outside.
            -- override(name, own): a limit of its own; charge(name, tokens), refund(line, tokens, id): tokens
            -- of rates; close(name, till): what needs this resource waits.
            local function set_over(r)
                call('HSET', OVER, r.name, (r.own or '-') .. ' ' .. (r.till or 0))
                if not has('o') then note_flag('o') end
            end
            local function wake_all(r)
                if not r.waits then return end
                if r.more > 0 then wake(r, r.more) end
                if r.waits then set_alarm(r) end
            end
            -- What has changed for resources from outside: let as many lines come up as they let through.
            function counts.reopen(names)
                load(names)
                for i = 1, #names do wake_all(known[names[i]]) end
            end
            -- A limit of its own for a resource ('-': that of its class; nil: as it is), open from now on.
            function counts.override(name, own)
                local r = counts.resource(name)
                r.own, r.till = own or r.own or '-', '0'
                set_over(r)
                if r.own == '-' then call('HDEL', OVER, name) end
            end
            -- Tokens of a smooth rate that are taken besides those of passing jobs; false if there is none.
            function counts.charge(name, tokens)
                local r = counts.resource(name)
                if not r.tat then return false end
                r.tat = math.max(clock(), r.tat + tokens * r.class.step)
                call('ZREM', RATE, name)
                if not r.changed then note(r) end
                count_more(r)
                wake_all(r)
                return true
            end
            -- What a job took from rates that has passed and goes back to its line.
            function counts.refund(line, tokens, id)
                for name in string.gmatch(line, '|([^|]+)') do
                    local r = counts.resource(name)
                    if r.tat then
                        counts.charge(name, -tokens)
                    elseif r.used and call('ZREM', WINDOW .. name, id) == 1 then
                        r.used = r.used - 1
                        count_more(r)
                        wake_all(r)
                    end
                end
            end
            function counts.close(name, till)
                local r = counts.resource(name)
                if r.closed and r.closed >= till * 1000 then return false end
                r.closed, r.till, r.more = till * 1000, string.format('%.0f', till), 0
                set_over(r)
                if r.waits then set_alarm(r) end
                return true
            end
