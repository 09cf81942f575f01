#!lua flags=allow-oom
-- tune: change limits, weights and pauses of a queue, and let through what may pass now.
-- KEYS  1 stream   2 gate (hash)   3 control (stream)
-- ARGV  1 ms to keep the control stream   2.. for each change  what, name, value:
--       declare  limit     definition: how the code of a worker declares it
--       set      limit     definition: from now on, until it is declared differently
--       reset    limit     '': as it was declared last; removed if it never was
--       value    resource  its own concurrency ('-': that of its limit; a breaker lets its task go on)
--       weight   key       its share ('': as jobs say)
--       pause    what      until when in ms (+ms: from now)
--       resume   what      ''
--       open     resource  '': it is closed no longer
--       every    ''        after so many jobs one of a lower level passes (0: none, '': as at first)
-- reply for each change what was there before; '' if there was nothing, or if nothing changed
-- Atomic because a job must not pass by a limit that has changed, and none may be forgotten.
local stream, key, control, kept = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
-- with parts/add_entry
-- with parts/member
-- with parts/gate
-- with parts/gate_create
-- with parts/hold
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local limits, changed, touched, before = key .. ':limits', {}, {}, {}
-- Removes nothing, but it is a write: after it, Redis 6.2 allows the others at its memory limit too.
redis.call('ZREMRANGEBYRANK', key .. ':wake', 1, 0)

local function store_limit(name, text)
    if not changed[name] then changed[name] = { redis.call('HGET', limits, name) } end
    changed[name][2] = text
    if text then redis.call('HSET', limits, name, text) else redis.call('HDEL', limits, name) end
    if text and string.match(text, '^%d+ (%d+)') ~= '0' and redis.call('EXISTS', key) == 1 then
        add_flags(key, 'r')
    end
end
local change = {}
function change.declare(name, text)
    local declared = redis.call('HGET', limits, '=' .. name)
    if declared == text then return '' end
    local old = redis.call('HGET', limits, name)
    redis.call('HSET', limits, '=' .. name, text)
    store_limit(name, text)
    return old ~= text and old or ''
end
function change.set(name, text)
    local old = redis.call('HGET', limits, name)
    store_limit(name, text)
    return old or ''
end
function change.reset(name)
    local old = redis.call('HGET', limits, name)
    store_limit(name, redis.call('HGET', limits, '=' .. name))
    return old or ''
end
function change.value(name, own)
    local old = redis.call('HGET', key .. ':over', name)
    create_gate(key, kept)
    unhold(string.sub(name, 1, 1) == '~' and name or '|' .. name)
    touched[#touched + 1] = { name, own }
    return old and string.match(old, '^%S+') or ''
end
function change.weight(name, share)
    local old = redis.call('HGET', key .. ':weight', name)
    if share == '' then
        redis.call('HDEL', key .. ':weight', name)
    else
        create_gate(key, kept)
        redis.call('HSET', key .. ':weight', name, '=' .. share)
        add_flags(key, 'w')
    end
    return old or ''
end
function change.pause(what, till)
    if string.sub(till, 1, 1) == '+' then till = string.format('%.0f', now + till) end
    local old = redis.call('HGET', key .. ':pauses', what)
    create_gate(key, kept)
    redis.call('HSET', key .. ':pauses', what, till)
    add_flags(key, 'p')
    local has_end = tonumber(till) <= 8e15
    hold(what, has_end and string.format('%.0f', till - now) or '', has_end and till)
    touched[#touched + 1] = { '!:' .. what }
    return old or ''
end
function change.resume(what)
    local old = redis.call('HGET', key .. ':pauses', what)
    redis.call('HDEL', key .. ':pauses', what)
    unhold(what)
    touched[#touched + 1] = { '!:' .. what }
    return old or ''
end
function change.open(name)
    unhold('|' .. name)
    touched[#touched + 1] = { name, '' }
    return redis.call('HGET', key .. ':over', name) or ''
end
function change.every(_, count)
    local old = redis.call('HGET', key, 'every')
    if count == '' then
        redis.call('HDEL', key, 'every')
    else
        create_gate(key, kept)
        redis.call('HSET', key, 'every', count)
    end
    return old or ''
end
for i = 2, #ARGV, 3 do
    before[#before + 1] = change[ARGV[i]](ARGV[i + 1], ARGV[i + 2])
end

-- The fields of a hash, or members of a sorted set, that are resources of changed limits, with values.
local function changed_in(command, name)
    local cursor, found = '0', {}
    repeat
        local page = redis.call(command, name, cursor, 'COUNT', 1000)
        cursor = page[1]
        for i = 1, #page[2], 2 do
            if changed[string.match(page[2][i], '^[^:]*')] then found[page[2][i]] = page[2][i + 1] end
        end
    until cursor == '0'
    return found
end
-- The time between two jobs of a smooth rate; nil if the definition has none.
local function step_of(text)
    local count, per, strict = string.match(text or '', '^%d+ ([1-9]%d*) (%d+) %d+ (%d)')
    return strict == '0' and per / count or nil
end
-- What smooth rates have let through is kept as a time to rest, which is another one with another step.
local function rescale_rates()
    local now_us = time[1] * 1000000 + time[2]
    for name, rest in pairs(changed_in('ZSCAN', key .. ':rate')) do
        local texts = changed[string.match(name, '^[^:]*')]
        local old, new = step_of(texts[1]), step_of(texts[2])
        if not (old and new) then
            redis.call('ZREM', key .. ':rate', name)
        elseif old ~= new then
            redis.call('ZADD', key .. ':rate', now_us + math.max(0, rest - now_us) * new / old, name)
        end
    end
end

if redis.call('EXISTS', key) == 0 then return before end
if next(changed) then rescale_rates() end
local gate, reopened = open_gate(key), {}
for _, each in ipairs(touched) do
    local name, own = each[1], each[2]
    if own then gate.override(name, own ~= '' and own or nil) end
    reopened[#reopened + 1] = name
end
if next(changed) then
    -- Those that a line waits for: see gate_counts.
    for name, text in pairs(changed_in('HSCAN', key .. ':run')) do
        if string.find(text, '^%d+[-+*]') then reopened[#reopened + 1] = name end
    end
end
if #reopened > 0 then gate.reopen(reopened) end
gate.pass()
return before
