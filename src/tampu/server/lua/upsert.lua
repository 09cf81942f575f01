-- upsert: store a schedule, new or in place of one of the same key.
-- KEYS  1 repeats (sorted set)   2 paused repeats (sorted set)   3 the schedule's hash
--       4 bell of the schedules
-- ARGV  1 key   2 the spec that is stored, as far as is known ('': none)   3 spec   4 settings of ours
--       5 the first instant ('': it keeps its place and its counts)
-- reply 1 stored | 0 another spec is stored by now
-- Atomic because two may store one schedule, and a leader may fire or remove it, at the same time.
local repeats, resting, hash, bell = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- with parts/bell
local key, known, spec, own, first = unpack(ARGV, 1, 5)
local active, paused = redis.call('ZSCORE', repeats, key), redis.call('ZSCORE', resting, key)
local stored = redis.call('HGET', hash, 'spec') or ''
local removed = paused and stored == ''  -- by a peer, which does not know where paused ones are
if not active and not paused then stored = '' end  -- what a peer left behind
if stored ~= known then return 0 end
if first == '' then
    redis.call('HSET', hash, 'spec', spec, 'tampu', own)
    return 1
end
if removed then redis.call('ZREM', resting, key) end
redis.call('ZADD', (active or removed or not paused) and repeats or resting, first, key)
redis.call('DEL', hash)
redis.call('HSET', hash, 'spec', spec, 'tampu', own)
ring(nil, 0)
return 1
