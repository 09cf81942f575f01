    -- pass(): let through what there is room for, and write down what has changed. Call it last.
    function gate.pass()
        if flags ~= '' and (has('r') or has('o') or has('p')) then
            -- Also without room: the leader waits for the next that opens.
            local now_ms = floor(clock() / 1000)
            local due = call('ZRANGEBYSCORE', key .. ':wake', '-inf', now_ms, 'LIMIT', 0, 256)
            if #due > 0 then count_resources().wake_due(due) end
        end
        local room = capacity > 0 and math.min(capacity - call('XLEN', stream), MOST_A_CALL) or 0
        if room > 0 then
            local rings = {}
            for i = 1, #levels do rings[i] = RING .. sub(levels, i, i) end
            if next(fresh) or call('EXISTS', unpack(rings)) > 0 then admit(room) end
        end
        for level in pairs(fresh) do counts.flush(level) end
        if #over_pauses > 0 then call('HDEL', key .. ':pauses', unpack(over_pauses)) end
        if counts then counts.write() end
        if waiting ~= through then fields.waiting = state[4] + waiting - through end
        if next(fields) then
            local flat = {}
            for name, value in pairs(fields) do
                flat[#flat + 1] = name
                flat[#flat + 1] = value
            end
            call('HSET', key, unpack(flat))
        end
        return through
    end
