#!lua flags=allow-oom
-- purge: delete jobs that no worker has read yet.
-- KEYS  1 stream   2 gate (hash)
-- ARGV  1 most entries to delete
-- reply the fields and values of each deleted entry
-- Atomic because a worker may read in between, and a job that it runs must not be deleted.
local stream = KEYS[1]
local tag = string.sub(stream, 1, -8)
-- with parts/waiting
-- with parts/end_output
-- with parts/add_entry
-- with parts/member
-- with parts/gate
-- with parts/outbox
-- with parts/end_removed
local last = string.format('%.0f-%.0f', last_ms, last_number)
local ids, found = {}, {}
for _, entry in ipairs(redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', ARGV[1])) do
    local fields = entry[2]
    ids[#ids + 1] = entry[1]
    found[#found + 1] = fields
    for i = 1, #fields, 2 do
        if fields[i] == 'd' then end_removed(job_id_of(fields[i + 1]), 3600) end
    end
end
if #ids > 0 then
    redis.call('XDEL', stream, unpack(ids))
    local gate = open_gate(KEYS[2])
    if gate then
        gate.let_go(ids)
        gate.pass()
    end
end
wake_relay()
return found
