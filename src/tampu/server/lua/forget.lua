#!lua flags=allow-oom
-- forget: delete what is stored of a task that has ended; the others have a while to notice.
-- KEYS  1 course (hash)   2 the state as a plain store keeps it
-- ARGV  1 the version that was decided from   2 ms that its end can be noticed
-- reply 1 it is as good as deleted | 0 there is another version by now, or a run in flight
-- Atomic because nothing may begin between the look and the deletion.
local course = KEYS[1]
-- with parts/course
local version, _, flight = known()
if flight then return 0 end
if version == '0' or redis.call('HEXISTS', course, 'ended') == 1 then
    redis.call('DEL', KEYS[2])
    return 1  -- nobody coordinated it, somebody else has ended it, or sent again
end
if version ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[2])
write('version', string.format('%.0f', version + 1), 'ended', '1')
redis.call('PEXPIRE', course, ARGV[2])
return 1
