#!lua flags=allow-oom
-- lead: become or stay the leader of one service of a queue.
-- KEYS  1 lock
-- ARGV  1 holder   2 s that it lasts
-- reply 1 we lead | 0 another process leads
-- Atomic because only one process may take a free lock.
local holder = redis.call('GET', KEYS[1])
if not holder then
    redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
    return 1
end
if holder ~= ARGV[1] then return 0 end
redis.call('EXPIRE', KEYS[1], ARGV[2])
return 1
