-- note_lost: write down which jobs of a flow are nowhere, unless the flow went on since they were looked for.
-- KEYS  1 flow (hash)
-- ARGV  1 to 3 `live`, `held` and `again` of the flow when the search began
--       4 their ids, one a line ('': there are none)
-- reply 1, or 0 if the flow went on or is no longer there
-- Atomic because a job that ends in between is not lost, and a flow that is removed must not come back.
local now = redis.call('HMGET', KEYS[1], 'live', 'held', 'again', 's')
for i = 1, 3 do
    if (now[i] or '') ~= ARGV[i] then return 0 end
end
if now[4] ~= 'running' then return 0 end
if ARGV[4] == '' then redis.call('HDEL', KEYS[1], 'lost')
else redis.call('HSET', KEYS[1], 'lost', ARGV[4]) end
return 1
