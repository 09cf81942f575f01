-- holder_of(text): who holds a field of `held`, and until when in ms; nil if the text says neither.
-- lend(): give `field` to `token` for `lease` ms from `now` on.
-- outlast(): have `held` outlast a lease by as much again, so that one that has run out while nobody
-- wanted it can still be renewed.
local function holder_of(text)
    local holder, expiry = string.match(text or '', '^(.*):(%d+)$')
    return holder, tonumber(expiry)
end
local function outlast()
    local ms = 2 * lease
    if redis.call('PTTL', held) < ms then
        redis.call('PEXPIRE', held, string.format('%.0f', ms))
    end
end
local function lend()
    -- Removes nothing, but a write: behind it Redis 6.2 lets the rest be done at its memory limit too.
    redis.call('HDEL', held, '')
    redis.call('HSET', held, field, token .. ':' .. string.format('%.0f', now + lease))
    outlast()
end
