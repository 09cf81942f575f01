-- resume: have a paused schedule fire again.
-- KEYS  1 repeats (sorted set)   2 paused repeats (sorted set)   3 the schedule's hash
--       4 bell of the schedules
-- ARGV  1 key   2 the score that was decided from   3 its next instant ('': there is none)
--       4 how many instants passed while it was paused
-- reply 1 resumed | 0 it has changed since
-- Atomic because it must always be in one of the two sets, and be counted once.
local repeats, resting, hash, bell = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- with parts/bell
local key, score, next, passed = unpack(ARGV, 1, 4)
if redis.call('ZSCORE', resting, key) ~= score then return 0 end
if redis.call('ZSCORE', repeats, key) then
    redis.call('ZREM', resting, key)  -- a peer has stored it anew meanwhile
    return 1
end
if next == '' then
    redis.call('ZREM', resting, key)
    redis.call('DEL', hash)
    return 1
end
redis.call('ZADD', repeats, next, key)
redis.call('ZREM', resting, key)
if tonumber(passed) > 0 then
    redis.call('HINCRBY', hash, 'paused', passed)
    redis.call('HDEL', hash, 'held')
end
ring(nil, 0)
return 1
