#!lua flags=allow-oom
-- note_outbox: note how an outbox is doing, for metrics.
-- KEYS  1 figures of the queue's outboxes (hash)
-- ARGV  1 name   2 rows that wait   3 rows that were refused   4 ms that the oldest has waited
--       5 rows moved since the last note   6 of them duplicates   7 s that the figures are kept
-- reply 1
-- Atomic because the figures belong together, and must expire.
local name = ARGV[1]
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('HSET', KEYS[1], 'waiting:' .. name, ARGV[2], 'refused:' .. name, ARGV[3],
    'oldest_ms:' .. name, ARGV[4], 'counted_at_ms:' .. name, now)
redis.call('HINCRBY', KEYS[1], 'moved:' .. name, ARGV[5])
redis.call('HINCRBY', KEYS[1], 'duplicates:' .. name, ARGV[6])
redis.call('EXPIRE', KEYS[1], ARGV[7])
return 1
