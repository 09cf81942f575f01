-- due: which schedules are due, by the server's clock.
-- KEYS  1 schedules (sorted set)
-- ARGV  1 how many of those due to skip   2 most to return
-- reply {now in ms, us until the first that is not due (-1: none), its score ('': none),
--        then key and score of each due one}
-- Atomic because the clock and the set must be read at the same moment.
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local reply, left = { now, -1, '' }, redis.call(
    'ZRANGEBYSCORE', KEYS[1], '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
if left then
    -- A score may be any number; the caller waits an hour at most.
    local wait = math.min(left * 1000 - time[1] * 1000000 - time[2], 3600000000)
    reply[2], reply[3] = math.max(0, math.ceil(wait)), left
end
local due = redis.call(
    'ZRANGEBYSCORE', KEYS[1], '-inf', now, 'WITHSCORES', 'LIMIT', ARGV[1], ARGV[2])
for _, text in ipairs(due) do reply[#reply + 1] = text end
return reply
