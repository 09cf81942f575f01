#!lua flags=allow-oom
-- acquire_lease: take a lease on one occurrence of a resource, or on the whole resource.
-- KEYS  1 leases (hash)   2 done occurrences (sorted set)
-- ARGV  1 field: the occurrence, or '*' for the whole resource   2 token   3 duration of the lease in ms
--       4 the occurrence as a member of the done ones
-- reply 1 the lease is ours | 0 another process holds it | 2 the occurrence is done
-- Atomic because no other process may take the lease between the check and the write.
local leases, done = KEYS[1], KEYS[2]
local field, token, lease, member = unpack(ARGV, 1, 4)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- with parts/lease_holder
local score = redis.call('ZSCORE', done, member)
local fields = redis.call('HGETALL', leases)
local taken = false
for i = 1, #fields, 2 do
    local name = fields[i]
    local holder, expiry = read_holder(fields[i + 1])
    if name == '=' then
        -- The tokens that were released last, for release_lease.
    elseif not expiry or expiry <= now then
        redis.call('HDEL', leases, name)
    elseif name == field and holder == token then
        return 1  -- a repeated call
    elseif name == field or name == '*' or field == '*' then
        taken = true
    end
end
if score then return 2 end
if taken then return 0 end
grant_lease()
return 1
