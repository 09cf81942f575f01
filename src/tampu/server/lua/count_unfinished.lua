-- count_unfinished: how many jobs of a queue are waiting, running or due.
-- KEYS  1 stream   2 delayed (sorted set)   3 gate (hash)
-- ARGV  none
-- reply the entries of the stream, the jobs that wait in lines, and the delayed jobs that are due by
--       the server's clock
-- Atomic because a job that is promoted in between would be counted twice or not at all.
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local lines = redis.call('HGET', KEYS[3], 'waiting') or 0
return redis.call('XLEN', KEYS[1]) + redis.call('ZCOUNT', KEYS[2], '-inf', now) + lines
