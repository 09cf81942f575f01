-- left: how many jobs of a queue are to be run now.
-- KEYS  1 stream   2 delayed (sorted set)
-- ARGV  none
-- reply entries that wait or run, plus delayed jobs that are due by the server's clock
-- Atomic because a job that goes from one to the other meanwhile would be in neither.
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
return redis.call('XLEN', KEYS[1]) + redis.call('ZCOUNT', KEYS[2], '-inf', now)
