-- replay_members: put dead letters of jobs of flows back on the queue: their flows go on.
-- KEYS  1 dead letters (stream)   2 stream   3 notices (stream)
-- ARGV  1.. for each dead letter  its id, the new id of its job, envelope, name, extras
-- reply one flag per dead letter: '1' replayed, '0' it no longer existed
-- Atomic because each letter must be replayed once, and its flow must know before the job ends.
local dead, stream, notices = KEYS[1], KEYS[2], KEYS[3]
local tag = string.sub(stream, 1, -8)
-- with parts/add_entry
-- with parts/member
-- with parts/gate
-- with parts/announce
-- with parts/outbox
-- with parts/add_members
-- with parts/flow_keys
-- with parts/flow
redis.call('XLEN', stream)  -- fails on a key of a wrong type, before anything is written
local flags, ends = {}, {}
for i = 1, #ARGV, 5 do
    local letter, id, body, name, extras = unpack(ARGV, i, i + 4)
    local flag = '0'
    if redis.call('XDEL', dead, letter) == 1 then
        flag = '1'
        add_members('', { join_member(name, body, extras) })
        note_end(ends, id, 'a', '', '')
    end
    flags[#flags + 1] = flag
end
end_jobs(ends)
pass_gate({})
announce_flows()
wake_relay()
return table.concat(flags)
