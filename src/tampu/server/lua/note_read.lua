-- note_read: say how far a reader of a job's stream is.
-- KEYS  1 how far readers are (stream)
-- ARGV  1 the id of the last chunk that it has read   2 s to keep this
-- reply 1 noted | 0 another reader was as far
-- Atomic because the key must never exist without an expiry.
local added = redis.pcall('XADD', KEYS[1], 'MAXLEN', 1, ARGV[1], 'r', '')
redis.call('EXPIRE', KEYS[1], ARGV[2])
return type(added) == 'table' and 0 or 1
