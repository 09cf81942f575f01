#!lua flags=allow-oom
-- release_lease: give back a lease, and remember that its occurrence is done.
-- KEYS  1 leases (hash)   2 done occurrences (sorted set)
-- ARGV  1 field   2 token   3 duration of a lease in ms   4 the occurrence as a member of the done ones
--       5 ms to remember it   6 most occurrences to remember
-- reply 1 released | 0 it was no longer ours
-- Atomic because at every moment the occurrence must be either held or done.
local leases, done = KEYS[1], KEYS[2]
local field, token, lease, member, remember_ms, most = unpack(ARGV, 1, 6)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- with parts/lease_holder
-- with parts/recent
local before = redis.call('HGET', leases, '=') or ''
if is_recent(before, token) then return 1 end  -- a repeated call
if read_holder(redis.call('HGET', leases, field)) ~= token then return 0 end
-- A write that needs no memory goes first: after it, Redis 6.2 allows the others at its limit too.
redis.call('ZREMRANGEBYSCORE', done, '-inf', string.format('%.0f', now - remember_ms))
redis.call('ZADD', done, string.format('%.0f', now), member)
redis.call('ZREMRANGEBYRANK', done, 0, -1 - most)
if redis.call('PTTL', done) < tonumber(remember_ms) then
    redis.call('PEXPIRE', done, remember_ms)
end
redis.call('HDEL', leases, field)
redis.call('HSET', leases, '=', remember(before, token))
extend_expiry()
return 1
