    -- enter(line, members): jobs wait in a line, in this order.
    local function join_ring(line)
        local level = sub(line, 1, 1)
        if not find(levels, level, 1, true) then
            local at = 1
            while at <= #levels and sub(levels, at, at) > level do at = at + 1 end
            levels = sub(levels, 1, at - 1) .. level .. sub(levels, at)
            call('HSET', key, 'levels', levels)
        end
        call('ZADD', RING .. level, 'NX', time_of(level), line)  -- a line that is there keeps its turn
    end
    function gate.enter(line, members)
        if call('RPUSH', LINE .. line, unpack(members)) == #members then join_ring(line) end
        waiting = waiting + #members
    end
