#!lua flags=allow-oom
-- forget: delete what is stored of a task.
-- KEYS  1 course (hash)   2 the state as a plain store keeps it
-- ARGV  1 the version that was decided from
-- reply 1 nothing is stored of it now | 0 there is another version by now, or a run in flight
-- Atomic because nothing may begin between the look and the deletion.
local course = KEYS[1]
-- with parts/course
local version, _, flight = known()
if flight then return 0 end
if version ~= ARGV[1] then return version == '0' and 1 or 0 end  -- gone: sent again
redis.call('DEL', course, KEYS[2])
return 1
