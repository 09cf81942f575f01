-- upsert: store a schedule, new or in place of one with the same key.
-- KEYS  1 schedules (sorted set)   2 paused schedules (sorted set)   3 the schedule's hash
--       4 wakeup of the schedules (list)   5 gate (hash)   6 control (stream)   7 stream
-- ARGV  1 key   2 the spec that is expected there ('': none)   3 spec   4 tampu's own settings
--       5 the first instant ('': it keeps its next instant and its counts)
--       if its jobs will wait in a line also  6 ms to keep the control stream   7 the flags of its jobs
--       8 line   9 weight ('': 1)   10.. for each limit  name, definition ('': declared elsewhere)
-- reply 1 stored | 0 another spec is stored; or an error NOLIMIT, and nothing was stored
-- Atomic because others may store the same schedule, fire it or remove it at the same time.
local schedules, paused_schedules, hash, wakeup, gate_key, control, stream = unpack(KEYS)
-- with parts/wakeup
-- with parts/gate_create
local key, known, spec, own, first = unpack(ARGV, 1, 5)
-- Workers that fire it only look for a gate.
local function open_line()
    if #ARGV < 9 then return end
    create_gate(gate_key, ARGV[6])
    local flag = declare(gate_key, 10, (#ARGV - 9) / 2)
    add_flags(gate_key, ARGV[7] .. flag)
    if ARGV[9] ~= '' then set_weight(gate_key, ARGV[8], ARGV[9], 36500) end
end
local active, paused = redis.call('ZSCORE', schedules, key), redis.call('ZSCORE', paused_schedules, key)
local stored = redis.call('HGET', hash, 'spec') or ''
local removed = paused and stored == ''  -- by a peer, which does not know the paused ones
if not active and not paused then stored = '' end  -- a leftover of a peer
if stored ~= known then return 0 end
local limits = (#ARGV - 9) / 2
local unknown = limits > 0 and undeclared(gate_key, 10, limits)
if unknown then return unknown end
if first == '' then
    redis.call('HSET', hash, 'spec', spec, 'tampu', own)
    open_line()
    return 1
end
if removed then redis.call('ZREM', paused_schedules, key) end
redis.call('ZADD', (active or removed or not paused) and schedules or paused_schedules, first, key)
redis.call('DEL', hash)
redis.call('HSET', hash, 'spec', spec, 'tampu', own)
open_line()
wake(nil, 0)
return 1
