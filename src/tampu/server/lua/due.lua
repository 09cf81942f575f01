-- due: which schedules are due, by the server's clock.
-- KEYS  1 repeats (sorted set)
-- ARGV  1 how many of those due to leave out   2 most to tell
-- reply {now in ms, us until the first that is not due (-1: there is none), key, score, ... of those due}
-- Atomic because the clock and the set must be of one moment.
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local reply, left = { now, -1 }, redis.call(
    'ZRANGEBYSCORE', KEYS[1], '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
if left then
    -- A score may be anything; who waits for it waits an hour at most.
    local wait = math.min(left * 1000 - time[1] * 1000000 - time[2], 3600000000)
    reply[2] = math.max(0, math.ceil(wait))
end
local due = redis.call(
    'ZRANGEBYSCORE', KEYS[1], '-inf', now, 'WITHSCORES', 'LIMIT', ARGV[1], ARGV[2])
for _, text in ipairs(due) do reply[#reply + 1] = text end
return reply
