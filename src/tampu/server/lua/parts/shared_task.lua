-- read_task(): version of `task` as text, '0' if there is none; the tokens of its last calls;
-- its run in progress as {token, until, at, catch_up, manual}, nil if there is none.
-- write_fields(...): set fields and values; the task has then not ended and does not expire.
-- store_state(version, state, ...): the same, with a state as the next version.
local function is_number(text)
    return text and #text <= 15 and string.find(text, '^%-?%d+$')
end
local function read_task()
    local found = redis.call(
        'HMGET', task, 'version', 'last', 'token', 'until', 'at', 'catch_up', 'manual')
    local version, last, run = found[1], found[2] or '', { unpack(found, 3, 7) }
    if not is_number(version) then version = '0' end
    if not (run[1] and is_number(run[2]) and is_number(run[3])) then run = nil end
    return version, last, run
end
local function write_fields(...)
    -- Also if it removes nothing: after a write, Redis 6.2 allows the others at its memory limit too.
    if redis.call('HDEL', task, 'ended') == 1 then redis.call('PERSIST', task) end
    redis.call('HSET', task, ...)
end
local function store_state(version, state, ...)
    write_fields('version', string.format('%.0f', version + 1), 'state', state, ...)
end
