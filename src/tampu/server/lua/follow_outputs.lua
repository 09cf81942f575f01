-- follow_outputs: say that somebody follows the streams of jobs; repeated while that is so.
-- KEYS  1.. for each job  its stream, its readers (sorted set)
-- ARGV  1 ms until that must be said again   2 s that keys are kept   3.. for each job  who follows it
-- reply for each job  the id of the newest entry; '0-1' if it has not yielded yet
-- Atomic because whoever ends a job looks for its stream: from here on there is one.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ids = {}
for i = 1, #KEYS, 2 do
    local key, readers = KEYS[i], KEYS[i + 1]
    if redis.call('EXISTS', key) == 0 then redis.call('XADD', key, '0-1', 'r', '') end
    local newest = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
    ids[#ids + 1] = newest and newest[1] or '0-1'
    if ids[#ids] == '0-1' then redis.call('EXPIRE', key, ARGV[2]) end
    -- The second member stays: it says that the job has had a reader.
    local at = string.format('%.0f', now + ARGV[1])
    redis.call('ZADD', readers, at, ARGV[2 + (i + 1) / 2], '+inf', '')
    redis.call('ZREMRANGEBYSCORE', readers, '-inf', string.format('%.0f', now - ARGV[2] * 1000))
    redis.call('EXPIRE', readers, ARGV[2])
end
return ids
