#!lua flags=allow-oom
-- advance: store a task's state; a run in flight stays as it is.
-- KEYS  1 course (hash)
-- ARGV  1 the version that was decided from   2 state   3 token of this call
-- reply 1 stored, as the next version | 0 there is another version by now
-- Atomic because two that decided from one version must not both be right.
local course = KEYS[1]
-- with parts/course
-- with parts/recent
local version, last = known()
if recent(last, ARGV[3]) then return 1 end  -- sent again
if version ~= ARGV[1] then return 0 end
store(version, ARGV[2], 'last', noted(last, ARGV[3]))
return 1
