#!lua flags=allow-oom
-- note_outcomes: tell the breakers of tasks how attempts ended, before their entries are settled.
-- KEYS  1 stream   2 gate (hash)   3 control (stream)
-- ARGV  1 ms to keep the control stream
--       2.. in turns  resource of the breaker, id of the entry, '1' if the attempt failed, else '0'
-- reply in turns  resource of a breaker that stops its task, or lets it go on; how many of the last
--       attempts failed, 0 if it goes on
-- Atomic because all workers count the attempts of a task together, and only one of them stops it.
local stream, key, control, kept, changes = KEYS[1], KEYS[2], KEYS[3], ARGV[1], {}
-- with parts/add_entry
-- with parts/member
-- with parts/gate
-- with parts/hold
local KEPT_MS = 604800000
local gate = open_gate(key)
if not gate then return changes end
-- Removes nothing, but it is a write: after it, Redis 6.2 allows the others at its memory limit too.
redis.call('ZREMRANGEBYRANK', key .. ':wake', 1, 0)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local breakers, known = key .. ':breakers', {}

-- `till` when its task is stopped until then (ms), else `window`: a sign for each of the last attempts.
local function breaker_of(name)
    local found = known[name]
    if not found then
        local share, of, cooldown = string.match(name, '^~([^/]+)/(%d+)/(%d+):')
        local override = redis.call('HGET', key .. ':over', name)
        found = {
            name = name, share = tonumber(share), of = tonumber(of), cooldown = tonumber(cooldown),
            till = override and tonumber(string.match(override, '^1 (%S+)$')),
            window = redis.call('HGET', breakers, name) or '',
        }
        known[name] = found
    end
    return found
end
local function stop(breaker)
    breaker.till = now + breaker.cooldown
    gate.override(breaker.name, '1')  -- of those that wait one is tried then
    gate.close(breaker.name, breaker.till)
    -- Only what has passed is given back: the job that is tried must find no worker that still does.
    hold(breaker.name, math.ceil(breaker.cooldown / 2))
end
local function go_on(breaker)
    breaker.till, breaker.window = nil, ''
    gate.override(breaker.name, '-')
    gate.reopen({ breaker.name })
    unhold(breaker.name)
    changes[#changes + 1] = breaker.name
    changes[#changes + 1] = 0
end
local function count(breaker, failed)
    breaker.window = string.sub(breaker.window .. failed, -breaker.of)
    local _, failures = string.gsub(breaker.window, '1', '')
    if #breaker.window == breaker.of and failures >= breaker.share * breaker.of then
        breaker.window = ''
        stop(breaker)
        changes[#changes + 1] = breaker.name
        changes[#changes + 1] = failures
    end
end
for i = 2, #ARGV, 3 do
    local breaker, failed = breaker_of(ARGV[i]), ARGV[i + 2]
    if not breaker.till then
        count(breaker, failed)
    elseif tonumber(string.match(ARGV[i + 1], '^%d+')) >= breaker.till then
        if failed == '1' then stop(breaker) else go_on(breaker) end
    end  -- what passed before it was stopped says nothing about now
end
for name, breaker in pairs(known) do
    if breaker.window == '' then redis.call('HDEL', breakers, name)
    else redis.call('HSET', breakers, name, breaker.window) end
end
redis.call('PEXPIRE', breakers, KEPT_MS)
gate.pass()
return changes
