-- find_abandoned: which jobs have had readers of their streams and have none any more.
-- KEYS  1.. for each job  its readers (sorted set)
-- ARGV  none
-- reply one flag per job: '0' it has readers or has had none, '1' all have left,
--       '2' those that have not left have not said for long that they are there
-- Atomic because all jobs are looked at in one moment, by the server's clock.
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local flags = {}
for i, key in ipairs(KEYS) do
    local known = redis.call('ZCARD', key)
    if known == 1 then
        flags[i] = '1'
    else
        flags[i] = known > 1 and redis.call('ZCOUNT', key, '(' .. now, '+inf') == 1 and '2' or '0'
    end
end
return table.concat(flags)
