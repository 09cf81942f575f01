#!lua flags=allow-oom
-- renew_claim: renew the lease of a run in progress, even an expired one that nobody has taken over.
-- KEYS  1 task (hash)
-- ARGV  1 token   2 duration of the lease in ms from now on
-- reply 1 the run stays ours | 0 it is no longer ours
-- Atomic because a run that another process has taken over must not be taken back.
local task = KEYS[1]
-- with parts/shared_task
-- with parts/lease_end
local _, _, run = read_task()
if not run or run[1] ~= ARGV[1] then return 0 end
write_fields('until', lease_end(ARGV[2]))
return 1
