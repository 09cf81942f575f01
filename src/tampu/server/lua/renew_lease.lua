#!lua flags=allow-oom
-- renew_lease: renew a lease, even an expired one that nobody has taken since.
-- KEYS  1 leases (hash)
-- ARGV  1 field   2 token   3 duration of the lease in ms from now on
-- reply 1 it stays ours | 0 it is no longer ours
-- Atomic because a lease that another process has taken must not be taken back.
local leases = KEYS[1]
local field, token, lease = unpack(ARGV, 1, 3)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- with parts/lease_holder
if read_holder(redis.call('HGET', leases, field)) ~= token then return 0 end
grant_lease()
return 1
