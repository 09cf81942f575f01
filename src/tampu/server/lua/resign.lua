#!lua flags=allow-oom
-- resign: stop leading, so that another process can lead at once.
-- KEYS  1 lock
-- ARGV  1 holder
-- reply 1 released | 0 it was not ours
-- Atomic because the lock of the next leader must not be deleted.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
