#!lua flags=allow-oom
-- complete: store a task's state, its run in flight being over.
-- KEYS  1 course (hash)
-- ARGV  1 the version that was decided from   2 state   3 token of the run
-- reply 1 stored, as the next version | 2 there is another version by now
--       | 0 the run is not ours any more
-- Atomic because what came of a run counts once, and only while it is its owner's.
local course = KEYS[1]
-- with parts/course
-- with parts/recent
local version, last, flight = known()
if recent(last, ARGV[3]) then return 1 end  -- sent again
if not flight or flight[1] ~= ARGV[3] then return 0 end
if version ~= ARGV[1] then return 2 end
store(version, ARGV[2], 'last', noted(last, ARGV[3]))
redis.call('HDEL', course, 'token', 'until', 'at', 'catch_up', 'manual')
return 1
