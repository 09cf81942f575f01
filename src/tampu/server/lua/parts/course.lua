-- known(): what `course` holds: its version as text, '0' if there is none; the calls that were noted
-- last; the run in flight as {token, until, at, catch_up, manual}, nil if there is none.
-- write(...): set fields and values of it; from then on it is not ended, and stays.
-- store(version, state, ...): the same, along with a state as the next version.
local function number(text)
    return text and #text <= 15 and string.find(text, '^%-?%d+$')
end
local function known()
    local found = redis.call(
        'HMGET', course, 'version', 'last', 'token', 'until', 'at', 'catch_up', 'manual')
    local version, last, flight = found[1], found[2] or '', { unpack(found, 3, 7) }
    if not number(version) then version = '0' end
    if not (flight[1] and number(flight[2]) and number(flight[3])) then flight = nil end
    return version, last, flight
end
local function write(...)
    -- Also where it removes nothing: behind it Redis 6.2 lets the rest be done at its memory limit.
    if redis.call('HDEL', course, 'ended') == 1 then redis.call('PERSIST', course) end
    redis.call('HSET', course, ...)
end
local function store(version, state, ...)
    write('version', string.format('%.0f', version + 1), 'state', state, ...)
end
