#!lua flags=allow-oom
-- claim: store the state of a shared task, and start the run that it counts as done.
-- KEYS  1 task (hash)
-- ARGV  1 the version that the decision is based on   2 state   3 token   4 duration of the lease in ms
--       5 instant of the run   6 '1' if it makes up for missed ones   7 '1' if it was requested by hand
-- reply 1 the run is ours, and the state is stored as the next version
--       | 0 there is a newer version, or a run in progress
-- Atomic because a run that the state counts must be in progress, whoever dies in between.
local task = KEYS[1]
-- with parts/shared_task
-- with parts/lease_end
local before, state, token, lease, at, catch_up, manual = unpack(ARGV, 1, 7)
local version, _, run = read_task()
if run and run[1] == token then return 1 end  -- a repeated call
if run or version ~= before then return 0 end
store_state(version, state, 'token', token, 'until', lease_end(lease),
    'at', at, 'catch_up', catch_up, 'manual', manual)
return 1
