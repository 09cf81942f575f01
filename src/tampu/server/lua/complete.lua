#!lua flags=allow-oom
-- complete: store the state of a shared task and end its run.
-- KEYS  1 task (hash)
-- ARGV  1 the version that the decision is based on   2 state   3 token of the run
-- reply 1 stored as the next version | 2 there is a newer version | 0 the run is no longer ours
-- Atomic because the outcome of a run counts once, and only while the run is its owner's.
local task = KEYS[1]
-- with parts/shared_task
-- with parts/recent
local version, last, run = read_task()
if is_recent(last, ARGV[3]) then return 1 end  -- a repeated call
if not run or run[1] ~= ARGV[3] then return 0 end
if version ~= ARGV[1] then return 2 end
store_state(version, ARGV[2], 'last', remember(last, ARGV[3]))
redis.call('HDEL', task, 'token', 'until', 'at', 'catch_up', 'manual')
return 1
