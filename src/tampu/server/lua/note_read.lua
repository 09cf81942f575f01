-- note_read: say how far a reader of a job's stream is.
-- KEYS  1 stream of the job   2 how far readers are (stream)
-- ARGV  1 the id of the last chunk that it has read   2 s to keep this
-- reply 'OK', also if another reader was as far, or there is no such chunk
-- Atomic because the key must never exist without an expiry, nor be ahead of the stream.
if #redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1]) == 1 then
    redis.pcall('XADD', KEYS[2], 'MAXLEN', 1, ARGV[1], 'r', '')
    redis.call('EXPIRE', KEYS[2], ARGV[2])
end
return 'OK'
