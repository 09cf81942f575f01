#!lua flags=allow-oom
-- promote: move delayed jobs that are due to the stream.
-- KEYS  1 delayed (sorted set)   2 stream   3 dead letters (stream)   4 events (stream)
--       5 counts (hash)   6 gate (hash)
-- ARGV  1 most jobs to move   2 most events to keep (0: write none)
--       3 s to keep the counts of the queue (0: count nothing)
-- reply {jobs moved, jobs that remain delayed, us until the next is due (-1: none remains), when it
--        is due ('': none remains), and for each moved job that may be found by its id: the id,
--        and its entry if a user chose the id, else ''}
-- Atomic because a job must be in one place only, so that it is either promoted or cancelled; and
-- because the event must be written before a worker can write that it runs the job.
local delayed, stream, dead, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local tag = string.sub(stream, 1, -8)
-- with parts/add_entry
-- with parts/member
-- with parts/emit_event
-- with parts/gate
-- with parts/line_rules
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stamp = string.format('%.0f', now)
redis.call('XLEN', stream)  -- these fail on keys of a wrong type, before anything is written
redis.call('XLEN', dead)
local due = redis.call('ZRANGEBYSCORE', delayed, '-inf', stamp, 'LIMIT', 0, ARGV[1])

-- Whether a job has run before. Then it waits for another attempt and has no index.
local function has_run(envelope, at)
    local kind, a, b, c, d = string.byte(envelope, at, at + 4)
    if kind == 0xc4 and a then at = at + 2 + a
    elseif kind == 0xc5 and b then at = at + 3 + a * 256 + b
    elseif kind == 0xc6 and d then at = at + 5 + a * 16777216 + b * 65536 + c * 256 + d
    else return false end
    local made, attempt = string.byte(envelope, at), string.byte(envelope, at + 9)
    return made == 0xcf and attempt ~= nil and attempt ~= 0
end

local reply, moved, gate, rules = { 0, 0, -1, '' }, 0, open_gate(KEYS[6]), nil
-- Whether a job gets into its line; others that wait, or the job itself, may be dropped.
local function enter(member)
    local extras = extras_of(member)
    local line = gate.line_of(extras)
    if has_rule(extras) then
        rules = rules or open_rules(KEYS[6], gate)
        if not rules.enters(line, member, extras) then return false end
    end
    gate.enter(line, { member })
    return true
end
-- Removes nothing, but it is a write: after it, Redis 6.2 allows the others at its memory limit too.
if #due > 0 then redis.call('ZREMRANGEBYRANK', delayed, 1, 0) end
for _, member in ipairs(due) do
    local name, envelope = split_member(member)
    if not name then
        -- It holds no job: move it away, so that it does not block the others.
        redis.call('XADD', dead, '*', 'd', member, 'source_id', '', 'reason', 'malformed',
            'detail', 'a delayed member without an envelope')
        if ARGV[3] ~= '0' then
            redis.pcall('HINCRBY', KEYS[5], 'x', 1)
            redis.pcall('HINCRBY', KEYS[5], 'bmalformed', 1)
            redis.pcall('EXPIRE', KEYS[5], ARGV[3])
        end
    elseif not gate or enter(member) then
        local id, rest = job_id_of(envelope)
        local entry = gate and '1' or add_entry(envelope, name, '')
        moved = moved + 1
        if id ~= '' and #id ~= 26 then
            reply[#reply + 1], reply[#reply + 2] = id, entry
        elseif rest and not has_run(envelope, rest) then
            reply[#reply + 1], reply[#reply + 2] = id, ''
        end
        if ARGV[2] ~= '0' then emit_event('waiting', id, name, stamp) end
    end
end
-- Last and in one go: the due ones come first in the set.
if #due > 0 then redis.call('ZREMRANGEBYRANK', delayed, 0, #due - 1) end
if gate and #due > 0 then gate.pass() end
if rules then rules.finish() end
if moved > 0 and ARGV[2] ~= '0' then redis.pcall('XTRIM', events, 'MAXLEN', '~', ARGV[2]) end
reply[1] = moved
reply[2] = redis.call('ZCARD', delayed)
local next_due = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2]
if next_due then
    reply[4] = next_due
    reply[3] = math.max(0, math.ceil(next_due * 1000 - time[1] * 1000000 - time[2]))
end
return reply
