#!lua flags=allow-oom
-- reclaim: take over a run in flight whose lease has run out.
-- KEYS  1 course (hash)
-- ARGV  1 the token that it was claimed with   2 token   3 ms that the lease lasts
-- reply 1 the run is ours | 0 it is in good hands, or not in flight any more
-- Atomic because only one may take it over, and not from who has renewed it meanwhile.
local course = KEYS[1]
-- with parts/course
-- with parts/lease_end
local before, token, lease = unpack(ARGV, 1, 3)
local _, _, flight = known()
if not flight then return 0 end
if flight[1] == token then return 1 end  -- sent again
if flight[1] ~= before or tonumber(flight[2]) > tonumber(lease_end(0)) then return 0 end
write('token', token, 'until', lease_end(lease))
return 1
