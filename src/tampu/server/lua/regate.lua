#!lua flags=allow-oom
-- regate: take entries that no worker has read back into their lines, if there are more than workers
-- have room for: those of before the queue had a gate, of peers, and of workers that are gone.
-- KEYS  1 stream   2 gate (hash)
-- ARGV  1 most entries to take back
-- reply how many were taken back
-- Atomic because a worker may read in between, and a job must be in one place only.
local stream, key = KEYS[1], KEYS[2]
-- with parts/waiting
-- with parts/add_entry
-- with parts/member
-- with parts/gate
local gate, room = open_gate(key), tonumber(redis.call('HGET', key, 'room') or 0)
if not gate or room == 0 then return 0 end
local most = math.min(tonumber(ARGV[1]), redis.call('XLEN', stream) - room)
if most <= 0 then return 0 end
local last, ids = string.format('%.0f-%.0f', last_ms, last_number), {}
-- The newest first: each goes to the head of its line, so that they keep their order.
for _, entry in ipairs(redis.call('XREVRANGE', stream, '+', '(' .. last, 'COUNT', most)) do
    local fields = { d = '', n = '', x = '', e = '' }
    for i = 1, #entry[2], 2 do fields[entry[2][i]] = entry[2][i + 1] end
    local envelope, extras, passed = fields.d, fields.x, fields.x ~= ''
    if extras == '' then _, envelope, extras = split_job(join_member('', envelope, '')) end
    if envelope ~= '' and #fields.n < 65536 then
        ids[#ids + 1] = entry[1]
        gate.put_back(gate.line_of(extras), join_member(fields.n, envelope, extras))
        -- With its extras in the envelope it came by a peer, past the gate; an expired one took nothing.
        if passed and fields.e == '' then gate.refund(extras, entry[1]) end
    end
end
if #ids > 0 then
    redis.call('XDEL', stream, unpack(ids))
    gate.let_go(ids)
end
gate.pass()
return #ids
