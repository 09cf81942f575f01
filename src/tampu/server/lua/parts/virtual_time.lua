-- Before every script in the test kit: `redis` with the time of the test instead of the server's.
-- The time is a key of the database. A database without that key keeps the server's time.
-- Keys expire by it too: each key with its end is in a sorted set, and `travel` deletes those that end.
local redis = (function(server)
    local clock, expiries = server.call('GET', 'tampu:testing:clock'), 'tampu:testing:expiries'
    if not clock then return server end
    local now = tonumber(clock)

    local function expire(key, ms)
        server.call('ZADD', expiries, string.format('%.0f', now + ms), key)
    end

    -- Each takes the plain call of the server, `call` or `pcall`, and what the script passed.
    local commands = {}
    function commands.TIME()
        return { string.format('%d', math.floor(now / 1000)), string.format('%d', now % 1000 * 1000) }
    end
    -- Ids have the time of the test too, and one order for the entries of all streams.
    function commands.XADD(call, ...)
        local given = { ... }
        for i, text in ipairs(given) do
            if string.find(text, '^%d+%-%d+$') then break end  -- an id: what follows are fields
            if text == '*' then
                given[i] = string.format('%.0f-%d', now, server.call('INCR', 'tampu:testing:order'))
                break
            end
        end
        return call('XADD', unpack(given))
    end
    function commands.SET(call, key, value, ...)
        local given, kept, ms = { ... }, {}, nil
        local i = 1
        while i <= #given do
            if given[i] == 'EX' or given[i] == 'PX' then
                ms = given[i + 1] * (given[i] == 'EX' and 1000 or 1)
                i = i + 1
            else
                kept[#kept + 1] = given[i]
            end
            i = i + 1
        end
        local reply = call('SET', key, value, unpack(kept))
        if reply and not reply.err then
            if ms then expire(key, ms) else server.call('ZREM', expiries, key) end
        end
        return reply
    end
    function commands.PEXPIRE(_, key, ms)
        if server.call('EXISTS', key) == 0 then return 0 end
        expire(key, ms)
        return 1
    end
    function commands.EXPIRE(call, key, s) return commands.PEXPIRE(call, key, s * 1000) end
    function commands.PERSIST(_, key) return server.call('ZREM', expiries, key) end
    function commands.PTTL(_, key)
        if server.call('EXISTS', key) == 0 then return -2 end
        local ends = server.call('ZSCORE', expiries, key)
        return ends and ends - now or -1
    end
    function commands.DEL(call, ...)
        server.call('ZREM', expiries, ...)
        return call('DEL', ...)
    end

    local function wrap(call)
        return function(command, ...)
            local virtual = commands[command]
            if virtual then return virtual(call, ...) end
            return call(command, ...)
        end
    end
    return setmetatable({ call = wrap(server.call), pcall = wrap(server.pcall) }, { __index = server })
end)(redis)
