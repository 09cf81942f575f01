#!lua flags=allow-oom
-- claim: store a task's state, and the run that it says has begun.
-- KEYS  1 course (hash)
-- ARGV  1 the version that was decided from   2 state   3 token   4 ms that the lease lasts
--       5 the run's instant   6 '1' if it makes up for others   7 '1' if somebody asked for it
-- reply 1 the run is ours, and the state stored as the next version
--       | 0 there is another version by now, or a run in flight
-- Atomic because a run that the state has behind it must be in flight, whoever dies in between.
local course = KEYS[1]
-- with parts/course
-- with parts/lease_end
local before, state, token, lease, at, catch_up, manual = unpack(ARGV, 1, 7)
local version, _, flight = known()
if flight and flight[1] == token then return 1 end  -- sent again
if flight or version ~= before then return 0 end
store(version, state, 'token', token, 'until', lease_end(lease),
    'at', at, 'catch_up', catch_up, 'manual', manual)
return 1
