-- travel: move the time of a test to the next instant at which something is due.
-- KEYS  1 the time   2 keys that expire (sorted set)   3.. sorted sets of what will be due
-- ARGV  1 the latest instant in ms   2 '1' if what is due by now counts as well
-- reply {the time in ms, the number of each sorted set that has something due, from 0}
-- Atomic because the time and what expires by it must change together.
local now, latest = tonumber(redis.call('GET', KEYS[1])), ARGV[1]
local first = ARGV[2] == '1' and '-inf' or string.format('(%.0f', now)
local at, due = tonumber(latest), {}
for i = 3, #KEYS do
    local found = redis.call('ZRANGEBYSCORE', KEYS[i], first, latest, 'WITHSCORES', 'LIMIT', 0, 1)[2]
    if found then
        local score = math.max(now, math.ceil(tonumber(found)))
        if score < at then at, due = score, {} end
        if score == at then due[#due + 1] = i - 3 end
    end
end
local text = string.format('%.0f', at)
redis.call('SET', KEYS[1], text)
for _, key in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', text)) do redis.call('DEL', key) end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', text)
return { text, unpack(due) }
