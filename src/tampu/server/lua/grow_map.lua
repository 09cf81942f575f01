-- grow_map: add jobs to a node of a flow that has many.
-- KEYS  1 stream   2 notices (stream)
-- ARGV  1 id of the flow   2 node   3 the number of the first job, or the token of this call if their
--       ids have nine digits 0 in place of a number, which are replaced   4 '1': these are the last ones
--       5 the last entry of results that its items were read from ('': they are no results)
--       6.. the jobs
-- reply the number of jobs that it has now, or -1: it takes no more
-- Atomic because a repeated call must add nothing, and because the node must not end in between.
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
-- with parts/recent
local flow = open_flow(ARGV[1])
local node = flow and load_node(flow, ARGV[2])
if not node then return -1 end
local calls = node.is_batch and redis.call('HGET', flow.key, 'r' .. node.name) or ''
if node.is_batch and is_recent(calls, ARGV[3]) then return node.added end
if not node.is_batch and #ARGV[3] == 26 then return -1 end  -- a token: the node is no batch
if not node.is_batch and tonumber(ARGV[3]) ~= node.added then return node.added end
-- Jobs that run may add to their own batch until the last of them has ended.
local is_open = node.stage == '1' or node.is_batch and node.stage == '2' and node.pending > 0
if not is_open then return -1 end
local members = { unpack(ARGV, 6) }
if flow.state ~= 'running' or flow.halted then
    if node.stage == '1' and not node.is_batch then
        node.stage, node.is_changed = '3', true
        flow.live = flow.live - 1
    elseif node.is_batch and ARGV[4] == '1' and node.stage == '1' then
        close_map(flow, node)
    end
    note_changes(flow)
    announce_flows()
    return -1
end
if node.is_batch then
    redis.call('HSET', flow.key, 'r' .. node.name, remember(calls, ARGV[3]))
    for i, member in ipairs(members) do
        local name, body, extras = split_job(member)
        local from, to = string.find(body, '~' .. node.name .. '.000000000', 1, true)
        local number = string.format('%09d', node.added + i - 1)
        body = string.sub(body, 1, to - 9) .. number .. string.sub(body, to + 1)
        members[i] = join_member(name, body, extras)
    end
end
-- Results may come later of jobs that were tolerated: whoever goes on with this leaves them out.
if ARGV[5] ~= '' then redis.call('HSETNX', flow.key, 'l' .. node.name, ARGV[5]) end
add_members(node.queue, members)
add_to_map(flow, node, #members)
if ARGV[4] == '1' then close_map(flow, node) end
note_changes(flow)
pass_gate({})
announce_flows()
wake_relay()
return node.added
