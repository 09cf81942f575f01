-- upsert: store a schedule, new or in place of one with the same key.
-- KEYS  1 schedules (sorted set)   2 paused schedules (sorted set)   3 the schedule's hash
--       4 wakeup of the schedules (list)
-- ARGV  1 key   2 the spec that is expected there ('': none)   3 spec   4 tampu's own settings
--       5 the first instant ('': it keeps its next instant and its counts)
-- reply 1 stored | 0 another spec is stored
-- Atomic because others may store the same schedule, fire it or remove it at the same time.
local schedules, paused_schedules, hash, wakeup = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- with parts/wakeup
local key, known, spec, own, first = unpack(ARGV, 1, 5)
local active, paused = redis.call('ZSCORE', schedules, key), redis.call('ZSCORE', paused_schedules, key)
local stored = redis.call('HGET', hash, 'spec') or ''
local removed = paused and stored == ''  -- by a peer, which does not know the paused ones
if not active and not paused then stored = '' end  -- a leftover of a peer
if stored ~= known then return 0 end
if first == '' then
    redis.call('HSET', hash, 'spec', spec, 'tampu', own)
    return 1
end
if removed then redis.call('ZREM', paused_schedules, key) end
redis.call('ZADD', (active or removed or not paused) and schedules or paused_schedules, first, key)
redis.call('DEL', hash)
redis.call('HSET', hash, 'spec', spec, 'tampu', own)
wake(nil, 0)
return 1
