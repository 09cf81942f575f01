#!lua flags=allow-oom
-- free_unique: free unique keys that certain jobs hold.
-- KEYS  1.. the keys
-- ARGV  1.. for each key  the id of the job that must hold it
-- reply how many were freed
-- Atomic because another job may take a key as soon as it is free.
local freed = 0
for i, holder in ipairs(ARGV) do
    if redis.call('GET', KEYS[i]) == holder then freed = freed + redis.call('DEL', KEYS[i]) end
end
return freed
