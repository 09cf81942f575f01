#!lua flags=allow-oom
-- end_members: note how jobs of flows of this queue have ended in other queues.
-- KEYS  1 stream   2 notices (stream)
-- ARGV  1.. for each job  its id, how it ended as in `settle_members` or 'a': it was replayed,
--           its result or failure, the queue and id of its dead letter ('': there is none)
-- reply how many there were
-- Atomic because the relay may bring each of them more than once, and it counts once.
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
-- One after the other: a replay must not come before the end that it follows.
for i = 1, #ARGV, 4 do
    local each = parse_member(ARGV[i])
    each.kind, each.value, each.place = ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
    end_jobs({ each })
end
pass_gate({})
announce_flows()
wake_relay()
return #ARGV / 4
