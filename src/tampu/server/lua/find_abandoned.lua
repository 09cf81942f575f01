-- find_abandoned: which jobs have had readers of their streams and have none any more.
-- KEYS  1.. for each job  its readers (sorted set)
-- ARGV  none
-- reply one flag per job: '1' all readers have left, '0' it has readers or has had none
-- Atomic because readers are removed that have not said for long that they are there.
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local flags = {}
for i, key in ipairs(KEYS) do
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
    flags[i] = redis.call('ZCARD', key) == 1 and '1' or '0'
end
return table.concat(flags)
