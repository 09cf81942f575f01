-- fire: add the jobs of schedules that are due, count, and arm them for their next instants.
-- KEYS  1 lock   2 repeats (sorted set)   3 stream   4 delayed (sorted set)   5 bell   6 events (stream)
--       7.. the hash of each schedule
-- ARGV  1 who must hold the lock   2 most events to keep (0: write none)
--       3.. for each schedule  key, the score that was decided from, limit (0: none),
--           overlap (allow | skip | queue_one), how many instants were missed, outside the window,
--           overlapped, its next instant ('': there is none), how many fires follow;
--           for each fire  instant, due ('': now), envelope (due later: member), name, extras, job id
-- reply for each schedule four numbers: how many fired, how many met an earlier one that is not done,
--       how many were past the limit, what became of it (0 nothing: it has changed since,
--       1 armed, 2 removed, 3 an instant waits for an earlier one);
--       nil if the lock is somebody else's
-- Atomic because an instant must fire once, whoever else leads, and be counted in the same step.
-- It has no #!lua line: at its memory limit a server refuses the first write, and nothing is done.
local lock, repeats, stream, delayed, bell, events = unpack(KEYS, 1, 6)
-- with parts/put
-- with parts/bell
-- with parts/tell
if redis.call('GET', lock) ~= ARGV[1] then return false end
redis.call('XLEN', stream)  -- fails before anything is written if it is not what it should be
local before, earliest = first_due(), nil
local time = redis.call('TIME')
local stamp = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))

local function is_there(entry)
    if not entry then return false end
    local found = redis.pcall('XRANGE', stream, entry, entry)
    return not found.err and #found > 0
end

-- One fire; the id of the entry, nil if the job is delayed.
local function add(at)
    local due, body, name, extras, id = unpack(ARGV, at + 1, at + 5)
    if ARGV[2] ~= '0' then tell('fired', id, name, stamp) end
    if due == '' then return put(body, name, extras) end
    redis.call('ZADD', delayed, due, body)
    due = tonumber(due)
    if not earliest or due < earliest then earliest = due end
end

local function count(hash, field, by)
    if tonumber(by) > 0 then redis.call('HINCRBY', hash, field, by) end
end

-- One schedule whose arguments begin at `at`: the four numbers.
local function fire(hash, at)
    local key, score, limit, overlap, missed, outside, overlapped, next, fires = unpack(ARGV, at, at + 8)
    if redis.call('ZSCORE', repeats, key) ~= score then return 0, 0, 0, 0 end
    local known = redis.pcall('HMGET', hash, 'spec', 'fired', 'last', 'held')
    if known.err then return 0, 0, 0, 0 end
    if not known[1] then
        if redis.call('EXISTS', hash) == 1 then return 0, 0, 0, 0 end
        redis.call('ZREM', repeats, key)  -- of a schedule that is gone
        return 0, 0, 0, 2
    end
    local total, last, fired, met, past = tonumber(known[2]) or 0, known[3], 0, 0, 0
    limit = tonumber(limit)
    for i = at + 9, at + 3 + 6 * fires, 6 do
        if limit > 0 and total + fired >= limit then
            past = past + 1
        elseif overlap ~= 'allow' and is_there(last) then
            if overlap == 'queue_one' then
                if known[4] ~= ARGV[i] then
                    count(hash, 'missed', missed)
                    count(hash, 'outside', outside)
                    redis.call('HSET', hash, 'held', ARGV[i])
                    redis.call('ZADD', repeats, ARGV[i], key)
                end
                return 0, 0, 0, 3
            end
            met = met + 1
        else
            last = add(i)
            fired = fired + 1
        end
    end
    if next == '' or limit > 0 and total + fired >= limit then
        redis.call('ZREM', repeats, key)
        redis.call('DEL', hash)
        return fired, met, past, 2
    end
    if fired > 0 then redis.call('HSET', hash, 'fired', total + fired, 'last', last or '') end
    count(hash, 'missed', missed)
    count(hash, 'outside', outside)
    count(hash, 'overlapped', overlapped + met)
    if known[4] then redis.call('HDEL', hash, 'held') end
    redis.call('ZADD', repeats, next, key)
    return fired, met, past, 1
end

local reply, at, written = {}, 3, false
for n = 7, #KEYS do
    local fired, met, past, state = fire(KEYS[n], at)
    reply[#reply + 1], reply[#reply + 2], reply[#reply + 3], reply[#reply + 4] = fired, met, past, state
    written = written or fired > 0
    at = at + 9 + 6 * ARGV[at + 8]
end
ring(before, earliest)
if written and ARGV[2] ~= '0' then redis.pcall('XTRIM', events, 'MAXLEN', '~', ARGV[2]) end
return reply
