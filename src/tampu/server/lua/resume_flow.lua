-- resume_flow: let a flow go on that was halted: add what waits, at most so many jobs.
-- KEYS  1 stream   2 notices (stream)
-- ARGV  1 id of the flow   2 about how many jobs to add
-- reply how many jobs still wait, -1 if there is no such flow or it was cancelled
-- Atomic because what was parked is added once.
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
local flow = open_flow(ARGV[1])
if not flow or flow.state == 'cancelled' then return -1 end
if flow.state == 'done' then return 0 end
local parked = flow.key .. ':parked'
-- The buckets of those that were added before are empty, and there may be many of them.
local cursor, found, places = '0', {}, {}
repeat
    cursor, found = unpack(redis.call('HSCAN', parked, cursor, 'COUNT', ARGV[2]))
until #found > 0 or cursor == '0'
for i = 1, #found, 2 do
    local node = load_node(flow, string.match(found[i], '^%d+'))
    unpark(flow, node, found[i], found[i + 1])
    flow.live = flow.live + 1
    places[#places + 1] = found[i]
end
for i = 1, #places, 4000 do redis.call('HDEL', parked, unpack(places, i, math.min(i + 3999, #places))) end
local left = redis.call('HLEN', parked)
if left > 0 then
    ask_to_resume(flow)  -- should the caller not come back
else
    flow.halted, flow.resumes = false, false
    for name = 0, redis.call('HGET', flow.key, 'nodes') - 1 do
        local waits, stage = unpack(redis.call('HMGET', flow.key, 'w' .. name, 'z' .. name))
        if (stage or '') == '' and tonumber(waits) <= 0 then flow.ready[#flow.ready + 1] = tostring(name) end
        if stage == '3' then
            local node = load_node(flow, tostring(name))
            node.stage, node.is_changed = '1', true
            flow.live = flow.live + 1
            send_message('op', 'grow', 'flow', flow.id, 'node', node.name)
        end
    end
end
if flow.state == 'failed' and (flow.live > 0 or #flow.ready > 0) then
    flow.state = 'running'
    keep(flow, nil)
end
note_changes(flow)
pass_gate({})
announce_flows()
wake_relay()
return left
