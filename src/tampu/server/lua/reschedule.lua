-- reschedule: change the due time of a delayed job.
-- KEYS  1 delayed (sorted set)   2 wakeup (list)   3 its index   4 the marker of its id
-- ARGV  1 its member   2 its new member   3 due (ms | +ms from now)
--       4 s that its index is kept, if it has one
-- reply 1 moved | 0 it was not delayed
-- Atomic because a job that is promoted in the meantime must not be delayed again.
local delayed, wakeup, index, marker = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- with parts/wakeup
local before, was = first_due(), redis.call('ZSCORE', delayed, ARGV[1])
if not was then return 0 end
local left = redis.call('PTTL', marker)
local at = tonumber(ARGV[3])
if string.sub(ARGV[3], 1, 1) == '+' then
    local time = redis.call('TIME')
    at = at + time[1] * 1000 + math.floor(time[2] / 1000)
end
redis.call('ZREM', delayed, ARGV[1])
redis.call('ZADD', delayed, string.format('%.0f', at), ARGV[2])
if redis.call('GET', index) == ARGV[1] then redis.call('SET', index, ARGV[2], 'EX', ARGV[4]) end
-- The id stays taken for as long after the new due time as it would have after the old one.
if left > 0 then
    redis.call('PEXPIRE', marker, string.format('%.0f', math.max(1000, left + at - was)))
end
wake(before, at)
return 1
