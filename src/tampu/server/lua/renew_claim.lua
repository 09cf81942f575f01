#!lua flags=allow-oom
-- renew_claim: renew the lease on a run in flight, also one that has run out if nobody took it over.
-- KEYS  1 course (hash)
-- ARGV  1 token   2 ms that the lease lasts from now on
-- reply 1 the run stays ours | 0 it is not ours any more
-- Atomic because what somebody else has taken over must not be taken back.
local course = KEYS[1]
-- with parts/course
-- with parts/lease_end
local _, _, flight = known()
if not flight or flight[1] ~= ARGV[1] then return 0 end
write('until', lease_end(ARGV[2]))
return 1
