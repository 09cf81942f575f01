-- start_flow: store a flow, and add the jobs that wait for nothing; a repeated call changes nothing.
-- KEYS  1 stream   2 notices (stream)   3 flow (hash)   4 flows (sorted set)
-- ARGV  1 id of the flow   2 how many texts follow that are its fields, then these
--       then the nodes that wait for nothing
-- reply 1, or 0 if it was there already
-- Atomic because a flow either is not there or will end.
local stream, notices = KEYS[1], KEYS[2]
local tag = string.sub(stream, 1, -8)
-- with parts/add_entry
-- with parts/member
-- with parts/gate
-- with parts/announce
-- with parts/outbox
-- with parts/add_members
-- with parts/flow_keys
-- with parts/flow
local is_first = redis.call('ZCARD', KEYS[4]) == 0  -- fails on a wrong type, before anything is written
if redis.call('EXISTS', KEYS[3]) == 1 then return 0 end
if is_first then start_relays() end
local last = 2 + ARGV[2]
for i = 3, last, 4000 do
    redis.call('HSET', KEYS[3], unpack(ARGV, i, math.min(i + 3999, last)))
end
redis.call('HSET', KEYS[3], 'at', now_ms())
local time = redis.call('TIME')
redis.call('ZADD', KEYS[4], string.format('%.0f', time[1] * 1000000 + time[2]), ARGV[1])
local flow = open_flow(ARGV[1])
for i = last + 1, #ARGV do flow.ready[#flow.ready + 1] = ARGV[i] end
note_changes(flow)
pass_gate({})
announce_flows()
wake_relay()
return 1
