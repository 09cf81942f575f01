#!lua flags=allow-oom
-- release_lease: give back what we hold, and remember that its occurrence has been done.
-- KEYS  1 held (hash)   2 done (sorted set)
-- ARGV  1 field   2 token   3 ms that a lease lasts   4 the occurrence as a member of done
--       5 ms to remember it   6 most occurrences to remember
-- reply 1 given back | 0 it was not ours any more
-- Atomic because there must be no moment in which it is neither held nor done.
local held, done = KEYS[1], KEYS[2]
local field, token, lease, member, remember, most = unpack(ARGV, 1, 6)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- with parts/held
-- with parts/recent
local before = redis.call('HGET', held, '=') or ''
if recent(before, token) then return 1 end  -- sent again
if holder_of(redis.call('HGET', held, field)) ~= token then return 0 end
-- A write that needs no memory comes first: behind it Redis 6.2 lets the rest be done at its limit too.
redis.call('ZREMRANGEBYSCORE', done, '-inf', string.format('%.0f', now - remember))
redis.call('ZADD', done, string.format('%.0f', now), member)
redis.call('ZREMRANGEBYRANK', done, 0, -1 - most)
if redis.call('PTTL', done) < tonumber(remember) then redis.call('PEXPIRE', done, remember) end
redis.call('HDEL', held, field)
redis.call('HSET', held, '=', noted(before, token))
outlast()
return 1
