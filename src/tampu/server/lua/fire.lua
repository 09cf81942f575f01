-- fire: add the jobs of due schedules, count the fires, and set the next instants.
-- KEYS  1 lock   2 schedules (sorted set)   3 stream   4 delayed (sorted set)   5 wakeup (list)
--       6 events (stream)   7 counts (hash)   8 gate (hash)   9.. the hash of each schedule
-- ARGV  1 who must hold the lock   2 most events to keep (0: write none)
--       3 s to keep the counts of the queue (0: count nothing)
--       4.. for each schedule  key, the score that the decision is based on, limit (0: none),
--           overlap (allow | skip | queue_one), how many instants were missed, outside the window,
--           overlapped, its next instant ('': none), how many fires follow;
--           for each fire  instant, due ('': now), envelope (due later: member), name, extras, job id
-- reply for each schedule four numbers: fires added, fires that met an unfinished earlier one,
--       fires over the limit, and its state (0 nothing done: it has changed, 1 armed, 2 removed,
--       3 an instant waits for an earlier one);
--       nil if another process holds the lock
-- Atomic because an instant must fire and be counted exactly once, whoever else leads.
-- It has no #!lua line: at its memory limit a server refuses the first write, and nothing is done.
local lock, schedules, stream, delayed, wakeup, events, counted = unpack(KEYS, 1, 7)
local tag = string.sub(stream, 1, -8)
-- with parts/add_entry
-- with parts/wakeup
-- with parts/emit_event
-- with parts/member
-- with parts/gate
-- with parts/line_rules
if redis.call('GET', lock) ~= ARGV[1] then return false end
redis.call('XLEN', stream)  -- fails on a key of a wrong type, before anything is written
local before, earliest, noted = first_due(), nil, {}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stamp = string.format('%.0f', now)

local gate, rules, MOST_SEARCHED = open_gate(KEYS[8]), nil, 5000
-- Whether the last job of a schedule waits or runs: it is known by its entry, or, if it had to wait in
-- a line, by its id and that line.
local function is_unfinished(last)
    if not last then return false end
    local id, line = string.match(last, '^@(%S+) (.*)$')
    if not id then
        local found = redis.pcall('XRANGE', stream, last, last)
        return not found.err and #found > 0
    end
    for _, member in ipairs(redis.call('LRANGE', KEYS[8] .. ':line:' .. line, 0, MOST_SEARCHED)) do
        local _, envelope = split_job(member)
        if job_id_of(envelope) == id then return true end
    end
    for _, entry in ipairs(redis.call('XRANGE', stream, '-', '+', 'COUNT', MOST_SEARCHED)) do
        for i = 1, #entry[2], 2 do
            if entry[2][i] == 'd' and job_id_of(entry[2][i + 1]) == id then return true end
        end
    end
    return false
end

-- Adds the job of one fire; returns the id of its entry, nil if it is delayed.
local function add_job(at)
    local due, body, name, extras, id = unpack(ARGV, at + 1, at + 5)
    if ARGV[2] ~= '0' then emit_event('fired', id, name, stamp) end
    if due == '' and gate then
        local line, member = gate.line_of(extras), join_member(name, body, extras)
        local rule = rule_of(extras)
        if rule then rules = rules or open_rules(KEYS[8], gate) end
        local kind, a, b, c
        if rule then kind, a, b, c = rules.read(rule) end
        if kind == 'quiet' then
            due = rules.replace_delayed(member, now, a, b, c)
            body = member
        elseif not rule or rules.enters(line, member, extras, true) then
            gate.enter(line, { member })
            return '@' .. id .. ' ' .. line
        else
            return nil
        end
    end
    if due == '' then return add_entry(body, name, extras) end
    redis.call('ZADD', delayed, string.format('%.0f', due), body)
    due = tonumber(due)
    if not earliest or due < earliest then earliest = due end
end

-- Notes instants for the history: kind is 'i' for those that fired, and 'm' for missed ones.
local function note(kind, key, count)
    if tonumber(count) > 0 then noted[#noted + 1] = {kind .. key, count} end
end

local function count(hash, field, by)
    if tonumber(by) > 0 then redis.call('HINCRBY', hash, field, by) end
end

-- Fires one schedule whose arguments begin at `at`; returns its four numbers.
local function fire(hash, at)
    local key, score, limit, overlap, missed, outside, overlapped, next, fires = unpack(ARGV, at, at + 8)
    if redis.call('ZSCORE', schedules, key) ~= score then return 0, 0, 0, 0 end
    local stored = redis.pcall('HMGET', hash, 'spec', 'fired', 'last', 'held')
    if stored.err then return 0, 0, 0, 0 end
    if not stored[1] then
        if redis.call('EXISTS', hash) == 1 then return 0, 0, 0, 0 end
        redis.call('ZREM', schedules, key)  -- the schedule itself was removed
        return 0, 0, 0, 2
    end
    local total, last, fired, met, past = tonumber(stored[2]) or 0, stored[3], 0, 0, 0
    limit = tonumber(limit)
    for i = at + 9, at + 3 + 6 * fires, 6 do
        if limit > 0 and total + fired >= limit then
            past = past + 1
        elseif overlap ~= 'allow' and is_unfinished(last) then
            if overlap == 'queue_one' then
                if stored[4] ~= ARGV[i] then
                    note('m', key, missed)
                    count(hash, 'missed', missed)
                    count(hash, 'outside', outside)
                    redis.call('HSET', hash, 'held', ARGV[i])
                    redis.call('ZADD', schedules, ARGV[i], key)
                end
                return 0, 0, 0, 3
            end
            met = met + 1
        else
            last = add_job(i)
            fired = fired + 1
        end
    end
    note('m', key, missed)
    note('i', key, fired)
    if next == '' or limit > 0 and total + fired >= limit then
        redis.call('ZREM', schedules, key)
        redis.call('DEL', hash)
        return fired, met, past, 2
    end
    if fired > 0 then redis.call('HSET', hash, 'fired', total + fired, 'last', last or '') end
    count(hash, 'missed', missed)
    count(hash, 'outside', outside)
    count(hash, 'overlapped', overlapped + met)
    if stored[4] then redis.call('HDEL', hash, 'held') end
    redis.call('ZADD', schedules, next, key)
    return fired, met, past, 1
end

local reply, at, written = {}, 4, false
for n = 9, #KEYS do
    if at > #ARGV then break end  -- in a cluster there is one key more
    local fired, met, past, state = fire(KEYS[n], at)
    reply[#reply + 1], reply[#reply + 2], reply[#reply + 3], reply[#reply + 4] = fired, met, past, state
    written = written or fired > 0
    at = at + 9 + 6 * ARGV[at + 8]
end
wake(before, earliest)
if gate and written then gate.pass() end
if rules then rules.finish() end
if #noted > 0 and ARGV[3] ~= '0' then
    for _, each in ipairs(noted) do redis.pcall('HINCRBY', counted, each[1], each[2]) end
    redis.pcall('EXPIRE', counted, ARGV[3])
end
if written and ARGV[2] ~= '0' then redis.pcall('XTRIM', events, 'MAXLEN', '~', ARGV[2]) end
return reply
