#!lua flags=allow-oom
-- admit: say how many entries a worker can have, and let jobs through while there is room.
-- KEYS  1 stream   2 gate (hash)
-- ARGV  1 consumer ('': the leader, who says nothing)   2 how many entries it can have
-- reply {1, jobs let through, ms until something opens (-1: nothing does), when that is ('': never)}
--       | {0}: the queue has no gate
-- Atomic because the room of a worker must be given to one job only.
local stream = KEYS[1]
-- with parts/add_entry
-- with parts/member
-- with parts/gate
local gate = open_gate(KEYS[2])
if not gate then return { 0 } end
-- Removes nothing, but it is a write: after it, Redis 6.2 allows the others at its memory limit too.
redis.call('ZREMRANGEBYRANK', KEYS[2] .. ':wake', 1, 0)
if ARGV[1] ~= '' then gate.set_room(ARGV[1], tonumber(ARGV[2])) else gate.is_led = true end
local count = gate.pass()
local first = redis.call('ZRANGE', KEYS[2] .. ':wake', 0, 0, 'WITHSCORES')[2]
if not first then return { 1, count, -1, '' } end
local time = redis.call('TIME')
return { 1, count, math.max(0, math.ceil(first - time[1] * 1000 - time[2] / 1000)), first }
