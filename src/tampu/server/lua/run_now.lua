#!lua flags=allow-oom
-- run_now: move a delayed job to the stream before it is due.
-- KEYS  1 delayed (sorted set)   2 stream   3 events (stream)   4 its index   5 gate (hash)
-- ARGV  1 its member ('': the one that its index holds)   2 most events to keep (0: write none)
-- reply 1 moved | 0 it was not delayed, or a newer job has replaced it
-- Atomic because a job must be in one place only.
local delayed, stream, events, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local tag = string.sub(stream, 1, -8)
-- with parts/add_entry
-- with parts/member
-- with parts/emit_event
-- with parts/gate
-- with parts/line_rules
redis.call('XLEN', stream)  -- fails on a key of a wrong type, before anything is written
local indexed, member = redis.call('GET', index), ARGV[1]
if member == '' then member = indexed end
local name, envelope
if member then name, envelope = split_member(member) end
if not name or not redis.call('ZSCORE', delayed, member) then return 0 end
local gate = open_gate(KEYS[5])
redis.call('ZREM', delayed, member)
if indexed == member then redis.call('DEL', index) end
local stays = true
if gate then
    local extras = extras_of(member)
    local line = gate.line_of(extras)
    local rules = has_rule(extras) and open_rules(KEYS[5], gate)
    stays = not rules or rules.enters(line, member, extras)
    if stays then gate.enter(line, { member }) end
    gate.pass()
    if rules then rules.finish() end
else
    add_entry(envelope, name, '')
end
if not stays then return 0 end
if ARGV[2] ~= '0' then
    local time = redis.call('TIME')
    local stamp = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
    emit_event('waiting', job_id_of(envelope), name, stamp)
    redis.pcall('XTRIM', events, 'MAXLEN', '~', ARGV[2])
end
return 1
