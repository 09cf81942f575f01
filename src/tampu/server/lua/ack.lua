#!lua flags=allow-oom
-- ack: settle entries of jobs that are done, where no result is stored: acknowledge, delete.
-- KEYS  1 stream   2 gate (hash)
-- ARGV  1 group   2 consumer that must hold the entries ('': any)   3 '1' if the server has XACKDEL
--       4.. the id of each entry
-- reply how many were settled
-- Atomic because what an entry holds must be freed if and only if the entry is settled.
local stream, group, consumer, has_ackdel = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
-- with parts/settle
-- with parts/add_entry
-- with parts/member
-- with parts/gate
-- with parts/free_slots
local ids, count = { unpack(ARGV, 4) }, 0
if consumer == '' and has_ackdel ~= '1' then
    -- All at once, as without a gate: what is deleted holds nothing, whether it was pending or not.
    redis.call('XDEL', stream, unpack(ids))
    count = redis.call('XACK', stream, group, unpack(ids))
    free_slots(KEYS[2], ids)
else
    local flags = settle(ids)
    for _, flag in ipairs(flags) do count = count + flag end
    free_slots(KEYS[2], ids, flags)
end
return count
