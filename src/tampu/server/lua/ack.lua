#!lua flags=allow-oom
-- ack: settle finished entries: acknowledge and delete them.
-- KEYS  1 stream
-- ARGV  1 group   2.. entry ids, at most 1000
-- reply how many of them were pending
-- Atomic because an entry that is acknowledged but not deleted would stay in the stream for ever.
local stream, group = KEYS[1], ARGV[1]
local acked = redis.call('XACK', stream, group, unpack(ARGV, 2))
redis.call('XDEL', stream, unpack(ARGV, 2))
return acked
