#!lua flags=allow-oom
-- advance: store the state of a shared task; a run in progress stays as it is.
-- KEYS  1 task (hash)
-- ARGV  1 the version that the decision is based on   2 state   3 token of this call
-- reply 1 stored as the next version | 0 there is a newer version
-- Atomic because only one of two decisions based on the same version may be stored.
local task = KEYS[1]
-- with parts/shared_task
-- with parts/recent
local version, last = read_task()
if is_recent(last, ARGV[3]) then return 1 end  -- a repeated call
if version ~= ARGV[1] then return 0 end
store_state(version, ARGV[2], 'last', remember(last, ARGV[3]))
return 1
