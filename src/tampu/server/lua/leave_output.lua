-- leave_output: say that somebody no longer follows the stream of a job.
-- KEYS  1 stream of the job   2 its readers (sorted set)
-- ARGV  1 who followed it
-- reply 'OK'
-- Atomic because another reader may come in between, and its stream must stay.
redis.call('ZREM', KEYS[2], ARGV[1])
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if redis.call('ZCARD', KEYS[2]) <= 1 and newest and newest[1] == '0-1' then
    redis.call('DEL', KEYS[1])
end
return 'OK'
