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
local settled = ids  -- a job that is done holds nothing, even if its entry was not pending any more
if consumer == '' and has_ackdel == '1' then
    local codes = redis.call('XACKDEL', stream, group, 'IDS', #ids, unpack(ids))
    for i = 1, #ids do
        if codes[i] == 1 then count = count + 1 end
    end
elseif consumer == '' then
    redis.call('XDEL', stream, unpack(ids))  -- all at once, as without a gate
    count = redis.call('XACK', stream, group, unpack(ids))
else
    settled = {}
    for i, flag in ipairs(settle(ids)) do
        if flag == '1' then
            count = count + 1
            settled[count] = ids[i]
        end
    end
end
free_slots(KEYS[2], settled)
return count
