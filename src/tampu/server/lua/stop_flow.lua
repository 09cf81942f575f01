#!lua flags=allow-oom
-- stop_flow: cancel a flow: nothing more of it starts, and workers are asked to stop what runs.
-- KEYS  1 stream   2 notices (stream)
-- ARGV  1 id of the flow   2 failure for waiting callers
-- reply its state before, '' if there is none
-- Atomic because a flow is either cancelled or done.
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
if not flow then return '' end
local before = flow.state
if before == 'running' or before == 'failed' then
    flow.state, flow.resumes = 'cancelled', false
    tell_failure(flow, ARGV[2])
    ask_workers(flow, 'cancel')
    local batch = redis.call('HGET', flow.key, 'j0') == 'b' and load_node(flow, '0')
    if batch and batch.stage == '1' then
        batch.stage, batch.is_changed = '3', true  -- whoever adds to it may never come back
        flow.live = flow.live - 1
    end
    note_changes(flow)
    if flow.live > 0 then keep(flow, HELD_S) end  -- should the end of one never come
    announce_flows()
    wake_relay()
end
return before
