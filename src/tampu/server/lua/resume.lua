-- resume: let a paused schedule fire again.
-- KEYS  1 schedules (sorted set)   2 paused schedules (sorted set)   3 the schedule's hash
--       4 wakeup of the schedules (list)
-- ARGV  1 key   2 the score that the decision is based on   3 its next instant ('': none)
--       4 how many instants passed while it was paused
-- reply 1 resumed | 0 it has changed
-- Atomic because the schedule must always be in one of the two sets, and be counted once.
local schedules, paused, hash, wakeup = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- with parts/wakeup
local key, score, next, passed = unpack(ARGV, 1, 4)
if redis.call('ZSCORE', paused, key) ~= score then return 0 end
if redis.call('ZSCORE', schedules, key) then
    redis.call('ZREM', paused, key)  -- a peer has stored it again in the meantime
    return 1
end
if next == '' then
    redis.call('ZREM', paused, key)
    redis.call('DEL', hash)
    return 1
end
redis.call('ZADD', schedules, next, key)
redis.call('ZREM', paused, key)
if tonumber(passed) > 0 then
    redis.call('HINCRBY', hash, 'paused', passed)
    redis.call('HDEL', hash, 'held')
end
wake(nil, 0)
return 1
