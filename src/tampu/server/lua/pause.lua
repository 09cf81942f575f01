-- pause: keep a schedule from firing, whoever leads, until it is resumed.
-- KEYS  1 schedules (sorted set)   2 paused schedules (sorted set)
-- ARGV  1 key
-- reply 1 paused | 0 there is none, or it was paused before
-- Atomic because the schedule must always be in one of the two sets.
local at = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not at then return 0 end
redis.call('ZADD', KEYS[2], at, ARGV[1])
redis.call('ZREM', KEYS[1], ARGV[1])
return 1
