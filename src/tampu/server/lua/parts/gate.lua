-- open_gate(key): the gate of a queue, that is its flow control; nil if it has none. Jobs wait in lines
-- in front of `stream`, and pass to it while workers have room. After `add_entry`, `members`.
-- A line is a list of jobs that need the same: <level>[/<key>][|<resource>]...
-- A resource is what a limit counts: <limit>[:<value>]; `>:<key>` for ordered jobs, one at a time;
-- `!:<what>` for what may be paused.
local MOST_A_CALL = 512
local AT_ONCE = 4000  -- arguments; an even number
local PLAIN = '5'
local FOREVER = 9e15  -- as a time in ms

local function open_gate(key)
    local call, sub, find, floor = redis.call, string.sub, string.find, math.floor
    local state = call('HMGET', key, 'levels', 'room', 'flags', 'waiting', 'v' .. PLAIN)
    local levels, capacity, flags = state[1], tonumber(state[2]), state[3]
    if not levels then return nil end
    local LINE, RING, HELD = key .. ':line:', key .. ':ring:', key .. ':held'
    local gate, now = {}, nil
    -- How many came to wait, and how many passed: nobody else may change `waiting` until `pass`.
    local waiting, through = 0, 0
    local known = {}  -- resources by name
    local fields = {}  -- of the hash `key`, to be written at the end

    local function has(flag) return find(flags, flag, 1, true) end
    local function note_flag(flag)
        flags = flags .. flag
        call('HSET', key, 'flags', flags)
    end
    local function clock()
        if not now then
            local time = call('TIME')
            now = time[1] * 1000000 + time[2]
        end
        return now
    end

    -- `unpack` has room for some 8000 values: longer lists are sent, or asked for, in several calls.
    local function send_all(command, to, args)
        for i = 1, #args, AT_ONCE do
            call(command, to, unpack(args, i, math.min(i + AT_ONCE - 1, #args)))
        end
    end
    local function ask_all(command, of, names)
        if #names <= AT_ONCE then return call(command, of, unpack(names)) end
        local found = {}
        for i = 1, #names, AT_ONCE do
            local part = call(command, of, unpack(names, i, math.min(i + AT_ONCE - 1, #names)))
            for j = 1, #part do found[i + j - 1] = part[j] end
        end
        return found
    end

    local pauses, over_pauses = {}, {}  -- what is paused, and until when in ms; what no longer is
    if flags ~= '' and has('p') then
        local found = call('HGETALL', key .. ':pauses')
        for i = 1, #found, 2 do
            local till = tonumber(found[i + 1])
            if till * 1000 > clock() then pauses[found[i]] = till
            else over_pauses[#over_pauses + 1] = found[i] end
        end
    end

    -- --- virtual time: whose turn it is within a level ------------------------------------------
    local times, fresh = { [PLAIN] = tonumber(state[5] or 0) }, {}
    local function time_of(level)
        local at = times[level]
        if not at then
            at = tonumber(call('HGET', key, 'v' .. level) or 0)
            times[level] = at
        end
        return at
    end
    -- with parts/gate_lines

    -- The functions of the other parts are made when they are needed first: to make them all takes
    -- more time than a small call.
    local counts, admission
    local function count_resources()
        if counts then return counts end
        counts = {}
        -- with parts/gate_counts
        return counts
    end
    local function admit(room)
        if not admission then
            -- with parts/gate_admit
            admission = admit_levels
        end
        admission(room)
    end
    -- with parts/gate_pass
    setmetatable(gate, { __index = function(_, name)
        -- with parts/gate_some
        return rawget(gate, name)
    end })
    return gate
end
