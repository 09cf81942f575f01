#!lua flags=allow-oom
-- reclaim: take over a run in progress whose lease has expired.
-- KEYS  1 task (hash)
-- ARGV  1 the token that holds it   2 our token   3 duration of the lease in ms
-- reply 1 the run is ours | 0 its lease is valid, or it is no longer in progress
-- Atomic because only one process may take it over, and not if its holder has just renewed it.
local task = KEYS[1]
-- with parts/shared_task
-- with parts/lease_end
local before, token, lease = unpack(ARGV, 1, 3)
local _, _, run = read_task()
if not run then return 0 end
if run[1] == token then return 1 end  -- a repeated call
if run[1] ~= before or tonumber(run[2]) > tonumber(lease_end(0)) then return 0 end
write_fields('token', token, 'until', lease_end(lease))
return 1
