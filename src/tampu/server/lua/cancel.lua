#!lua flags=allow-oom
-- cancel: remove jobs that are delayed or waiting; ask the workers to stop those that they hold.
-- KEYS  1 delayed (sorted set)   2 stream   3 control (stream)   4 requests to cancel (sorted set)
--       5 notices (stream)   6 gate (hash)
--       7.. for each job  its index, the key for its failure, its markers
-- ARGV  1 ms that a request is kept   2 s to keep failures   3 failure for waiting callers   4 notice
--       5.. for each job  its id, its member ('': neither delayed nor in a line), its line ('': none),
--           its entry ('': not known),
--           the latest time of adding to ask for ('': do not ask), the kinds of its markers
-- reply for each job  2 removed | 1 workers were asked to stop it | 0 neither
-- Atomic because a job either is removed and never runs, or it runs and is not removed.
local delayed, stream, control, requests, notices = unpack(KEYS, 1, 5)
local tag = string.sub(stream, 1, -8)
-- with parts/free
-- with parts/announce
-- with parts/end_output
-- with parts/waiting
-- with parts/add_entry
-- with parts/member
-- with parts/gate
-- with parts/line_rules
-- with parts/outbox
-- with parts/end_removed
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', requests, '-inf', string.format('%.0f', now))
local codes, key, removed, gate, gone = {}, 6, false, open_gate(KEYS[6]), {}

local function ask(id, latest)
    if latest == '*' then latest = string.format('%.0f', now) end
    redis.call('ZADD', requests, string.format('%.0f', now + ARGV[1]), latest .. ':' .. id)
    redis.call('PEXPIRE', requests, ARGV[1])
    redis.call('XADD', control, 'MAXLEN', '~', 1000, '*', 'op', 'cancel', 'id', id, 'latest', latest)
    redis.call('PEXPIRE', control, ARGV[1])
end

for i = 5, #ARGV, 6 do
    local id, member, line, entry, latest, kinds = unpack(ARGV, i, i + 5)
    local index, failure, code = KEYS[key + 1], KEYS[key + 2], 0
    if line ~= '' then
        code = gate and gate.remove(line, member) and 2 or 0
    elseif member ~= '' and redis.call('ZREM', delayed, member) == 1 then
        code = 2
        if redis.call('GET', index) == member then redis.call('DEL', index) end
        local extras = gate and extras_of(member) or ''
        if has_rule(extras) then forget_debounced(KEYS[6], member, rule_of(extras)) end
    elseif entry ~= '' and is_waiting(entry) then
        code = redis.call('XDEL', stream, entry) == 1 and 2 or 0
        if code == 2 then gone[#gone + 1] = entry end
    elseif latest ~= '' and (entry == '' or is_pending(entry)) then
        code = 1
        ask(id, latest)
    end
    if code == 2 then
        removed = true
        redis.pcall('SET', failure, ARGV[3], 'EX', ARGV[2])
        end_removed(id, ARGV[2])
    end
    key = free(kinds, key + 2, code == 2 and id or nil)
    codes[#codes + 1] = code
end
if removed then announce(ARGV[4], ARGV[2]) end
if gate then
    gate.let_go(gone)
    gate.pass()
end
wake_relay()
return codes
