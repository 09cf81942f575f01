#!lua flags=allow-oom
-- lead: take or keep the lead of one kind of service on a queue.
-- KEYS  1 lock
-- ARGV  1 holder   2 s it lasts
-- reply 1 we lead | 0 somebody else does
-- Atomic because asking who leads and taking the lead must not have a second taker in between.
local holder = redis.call('GET', KEYS[1])
if not holder then
    redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
    return 1
end
if holder ~= ARGV[1] then return 0 end
redis.call('EXPIRE', KEYS[1], ARGV[2])
return 1
