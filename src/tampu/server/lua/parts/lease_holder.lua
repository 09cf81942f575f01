-- read_holder(text): the token in a field of `leases` and its expiry in ms; nil if there is none.
-- grant_lease(): give `field` to `token` for `lease` ms from `now` on.
-- extend_expiry(): keep `leases` for twice as long as a lease, so that an expired lease that nobody
-- else wanted can still be renewed.
local function read_holder(text)
    local holder, expiry = string.match(text or '', '^(.*):(%d+)$')
    return holder, tonumber(expiry)
end
local function extend_expiry()
    local ms = 2 * lease
    if redis.call('PTTL', leases) < ms then
        redis.call('PEXPIRE', leases, string.format('%.0f', ms))
    end
end
local function grant_lease()
    -- Removes nothing, but it is a write: after it, Redis 6.2 allows the others at its memory limit too.
    redis.call('HDEL', leases, '')
    redis.call('HSET', leases, field, token .. ':' .. string.format('%.0f', now + lease))
    extend_expiry()
end
