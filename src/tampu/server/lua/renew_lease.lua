#!lua flags=allow-oom
-- renew_lease: renew the lease on what we hold, also one that has run out if nobody has asked since.
-- KEYS  1 held (hash)
-- ARGV  1 field   2 token   3 ms that the lease lasts from now on
-- reply 1 it stays ours | 0 it is not ours any more
-- Atomic because what somebody else has taken must not be taken back.
local held = KEYS[1]
local field, token, lease = unpack(ARGV, 1, 3)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- with parts/held
if holder_of(redis.call('HGET', held, field)) ~= token then return 0 end
lend()
return 1
