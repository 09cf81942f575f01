-- note_failures: add to the groups of failures, and forget those that did not occur for longest.
-- KEYS  1 groups (hash)   2 when each occurred last (sorted set)
-- ARGV  1 most groups   2 s to keep them   3.. in turns  a fingerprint, what was seen of it
-- reply nothing
-- Atomic because several workers add to the same group.
for i = 3, #ARGV, 2 do
    local mark, seen = ARGV[i], cmsgpack.unpack(ARGV[i + 1])
    local before = redis.call('HGET', KEYS[1], mark)
    if before then
        local known = cmsgpack.unpack(before)
        seen[3] = seen[3] + known[3]
        seen[4] = math.min(seen[4], known[4])
        seen[5] = math.max(seen[5], known[5])
    end
    redis.call('HSET', KEYS[1], mark, cmsgpack.pack(seen))
    redis.call('ZADD', KEYS[2], string.format('%.0f', seen[5]), mark)
end
local surplus = redis.call('ZCARD', KEYS[2]) - ARGV[1]
if surplus > 0 then
    local old = redis.call('ZRANGE', KEYS[2], 0, surplus - 1)
    redis.call('HDEL', KEYS[1], unpack(old))
    redis.call('ZREM', KEYS[2], unpack(old))
end
redis.call('EXPIRE', KEYS[1], ARGV[2])
redis.call('EXPIRE', KEYS[2], ARGV[2])
return 0
