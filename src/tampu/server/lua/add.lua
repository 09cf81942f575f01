-- add: add jobs to a queue; a repeated call adds nothing.
-- KEYS  1 stream   2 delayed (sorted set)   3 the replies to this producer's last calls (hash)
--       of 'full' also  4 wakeup (list)   5.. for each job that has them, in this order: the marker of
--           its id, its delayed index, its unique key, and with a marker the result and failure of an
--           earlier job
-- ARGV  1 number of the call   2 ms to remember the producer   3 longest stream (0: any)
--       4 'plain': then for each job  envelope, name
--         'full':  then for each job  envelope (delayed: member), name, extras,
--                  due ('': now | ms | +ms from now), marker s ('': no id), index s ('': none),
--                  unique: ms and the id of the job that takes the key ('': no key)
-- reply '' all were added | one flag per job: '1' added, '0' its id or its unique key was taken;
--       or an error QUEUEFULL, and nothing was added
-- Atomic because a call that is sent again after a lost reply must add nothing twice, and because
-- taking an id and adding its job must be one step.
-- It has no #!lua line: with one, a server at its memory limit would refuse a repeated call before the
-- script could find out that it was carried out already.
local stream, delayed, memory, wakeup = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- with parts/add_entry
-- with parts/wakeup
local number, limit, shape = ARGV[1], tonumber(ARGV[3]), ARGV[4]
local width = shape == 'plain' and 2 or 7

-- These three reads also fail on keys of a wrong type, before anything is written.
-- A producer has at most 16 calls in flight, so a repeated call is among the last 16.
local slot = tonumber(number) % 16
local remembered = redis.call('HGET', memory, slot)
if remembered then
    local before, reply = string.match(remembered, '^(%d+) (.*)$')
    if before == number then
        -- A small write: WAIT and WAITAOF then wait for all writes before it, the jobs included.
        redis.call('PEXPIRE', memory, ARGV[2])
        return reply
    end
    if tonumber(before) > tonumber(number) then
        return redis.error_reply('FORGOTTEN later calls of this producer have been carried out since')
    end
end
local waiting = redis.call('XLEN', stream)
redis.call('ZCARD', delayed)

-- Everything is checked before anything is written: a script that fails halfway is not rolled back.
local more = (#ARGV - 4) / width
if more ~= math.floor(more) then return redis.error_reply('ERR the last job of the call is incomplete') end
if shape ~= 'plain' then
    for i = 5, #ARGV, width do
        local due, marker, index, unique = unpack(ARGV, i + 3, i + 6)
        if due ~= '' then more = more - 1 end
        if not (due == '' or string.find(due, '^%+?%d+$') and #due <= 16)
            or not (marker == '' or string.find(marker, '^[1-9]%d*$') and #marker <= 10)
            or not (index == '' or string.find(index, '^[1-9]%d*$') and #index <= 10)
            or not (unique == '' or string.find(unique, '^[1-9]%d* .') ) then
            return redis.error_reply('ERR a job of the call has an invalid time')
        end
    end
end
if limit > 0 and more > 0 and waiting + more > limit then
    return redis.error_reply('QUEUEFULL the queue has reached its max_len')
end

local answer = ''
if shape == 'plain' then
    for i = 5, #ARGV, 2 do add_entry(ARGV[i], ARGV[i + 1], '') end
else
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local key, flags, taken = 4, {}, false
    local before, earliest = first_due(), nil
    for i = 5, #ARGV, 7 do
        local body, name, extras, due, marker, index, unique = unpack(ARGV, i, i + 6)
        local marker_key, index_key, unique_key
        if marker ~= '' then key = key + 1; marker_key = KEYS[key] end
        if index ~= '' then key = key + 1; index_key = KEYS[key] end
        if unique ~= '' then key = key + 1; unique_key = KEYS[key] end
        if marker_key then key = key + 2 end
        local free = (not marker_key or redis.call('EXISTS', marker_key) == 0)
            and (not unique_key or redis.call('EXISTS', unique_key) == 0)
        if not free then
            flags[#flags + 1] = '0'
            taken = true
        else
            flags[#flags + 1] = '1'
            local place = '1'
            if due == '' then
                place = add_entry(body, name, extras)
            else
                local at = tonumber(due)
                if string.sub(due, 1, 1) == '+' then at = now + at end
                redis.call('ZADD', delayed, string.format('%.0f', at), body)
                if index_key then redis.call('SET', index_key, body, 'EX', index) end
                if not earliest or at < earliest then earliest = at end
            end
            if marker_key then
                -- The marker tells where the job is; peers only ask whether it exists.
                redis.call('SET', marker_key, place, 'EX', marker)
                -- Callers who wait for the new job must not get the result of an earlier one. Not
                -- before the job is added: after a DEL, a server at its memory limit refuses nothing.
                redis.call('DEL', KEYS[key - 1], KEYS[key])
            end
            if unique_key then
                local ms, holder = string.match(unique, '^(%d+) (.*)$')
                redis.call('SET', unique_key, holder, 'PX', ms)
            end
        end
    end
    wake(before, earliest)
    if taken then answer = table.concat(flags) end
end

redis.call('HSET', memory, slot, number .. ' ' .. answer)
redis.call('PEXPIRE', memory, ARGV[2])
return answer
