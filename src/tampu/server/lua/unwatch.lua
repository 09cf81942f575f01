#!lua flags=allow-oom
-- unwatch: leave the watchers of a stream, and wake a consumer to watch it if there are too few.
-- KEYS  1 watchers (sorted set)   2 wakeup of a watcher (list)
-- ARGV  1 consumer   2 most watchers   3 ms that a wakeup waits for somebody
-- reply 1 somebody was called | 0 there are enough watchers
-- Atomic because a place that nobody is called to stays empty until somebody looks.
local watchers, wakeup = KEYS[1], KEYS[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREM', watchers, ARGV[1])
if redis.call('ZCOUNT', watchers, string.format('(%.0f', now), '+inf') >= tonumber(ARGV[2]) then
    return 0
end
redis.call('LPUSH', wakeup, '1')
redis.call('LTRIM', wakeup, 0, ARGV[2] - 1)
redis.call('PEXPIRE', wakeup, ARGV[3])
return 1
