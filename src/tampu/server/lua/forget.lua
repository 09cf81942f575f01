#!lua flags=allow-oom
-- forget: delete a shared task that has ended; other schedulers have a while to notice.
-- KEYS  1 task (hash)   2 the state as a plain store keeps it
-- ARGV  1 the version that the decision is based on   2 ms during which its end can be noticed
-- reply 1 deleted | 0 there is a newer version, or a run in progress
-- Atomic because no run may start between the check and the deletion.
local task = KEYS[1]
-- with parts/shared_task
local version, _, run = read_task()
if run then return 0 end
if version == '0' or redis.call('HEXISTS', task, 'ended') == 1 then
    redis.call('DEL', KEYS[2])
    return 1  -- it was never shared, another process has ended it, or a repeated call
end
if version ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[2])
write_fields('version', string.format('%.0f', version + 1), 'ended', '1')
redis.call('PEXPIRE', task, ARGV[2])
return 1
