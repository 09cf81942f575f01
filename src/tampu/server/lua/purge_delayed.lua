#!lua flags=allow-oom
-- purge_delayed: delete delayed jobs, and those that wait for their next attempt; first what is due first.
-- KEYS  1 delayed (sorted set)
-- ARGV  1 most jobs to delete
-- reply their members
-- Atomic because a flow must learn that its jobs are gone.
local tag = string.sub(KEYS[1], 1, -9)
local stream = tag .. ':stream'
-- with parts/end_output
-- with parts/member
-- with parts/outbox
-- with parts/end_removed
local found, members = redis.call('ZPOPMIN', KEYS[1], ARGV[1]), {}
for i = 1, #found, 2 do
    local _, envelope = split_member(found[i])
    members[#members + 1] = found[i]
    if envelope then end_removed(job_id_of(envelope), 3600) end
end
wake_relay()
return members
