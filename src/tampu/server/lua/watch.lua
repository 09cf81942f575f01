#!lua flags=allow-oom
-- watch: become or stay one of the few consumers that may block on the stream.
-- KEYS  1 watchers (sorted set)
-- ARGV  1 consumer   2 ms that it lasts   3 most watchers
-- reply 1 it may | 0 there are enough others
-- Atomic because two consumers must not take the last place.
local watchers = KEYS[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', watchers, '-inf', string.format('%.0f', now))
local is_one = redis.call('ZSCORE', watchers, ARGV[1])
if not is_one and redis.call('ZCARD', watchers) >= tonumber(ARGV[3]) then return 0 end
redis.call('ZADD', watchers, string.format('%.0f', now + ARGV[2]), ARGV[1])
redis.call('PEXPIRE', watchers, ARGV[2])
return 1
