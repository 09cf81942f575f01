#!lua flags=allow-oom
-- unschedule: remove a schedule.
-- KEYS  1 schedules (sorted set)   2 paused schedules (sorted set)   3 the schedule's hash
-- ARGV  1 key
-- reply 1 removed | 0 there was none
-- Atomic because a leader must find the whole schedule or nothing.
local removed = redis.call('ZREM', KEYS[1], ARGV[1]) + redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('DEL', KEYS[3])
return removed > 0 and 1 or 0
