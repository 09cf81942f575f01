#!lua flags=allow-oom
-- purge_line: delete jobs that wait in a line, the next ones first.
-- KEYS  1 gate (hash)
-- ARGV  1 line   2 most jobs to delete
-- reply their members
-- Atomic because the gate counts the jobs in its lines: the count must not drift.
local tag = string.sub(KEYS[1], 1, -12)
local stream = tag .. ':stream'
-- with parts/end_output
-- with parts/member
-- with parts/outbox
-- with parts/end_removed
local waiting = tonumber(redis.call('HGET', KEYS[1], 'waiting') or 0)
local members = redis.call('LPOP', KEYS[1] .. ':line:' .. ARGV[1], ARGV[2]) or {}
if #members > 0 then redis.call('HSET', KEYS[1], 'waiting', math.max(0, waiting - #members)) end
for _, member in ipairs(members) do
    local _, envelope = split_job(member)
    end_removed(job_id_of(envelope), 3600)
end
wake_relay()
return members
