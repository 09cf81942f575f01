#!lua flags=allow-oom
-- finish: settle entries whose handlers returned: acknowledge, delete, store the result.
-- KEYS  1 stream   2 notices (stream)   3 gate (hash)   4.. the key for the result of each entry
-- ARGV  1 group   2 consumer that must hold the entries ('': any)   3 '1' if the server has XACKDEL
--       4 s to keep results   5 notice for callers who wait for results ('': none)
--       6.. for each entry  its id, its result ('': none)
-- reply one flag per entry: '1' settled, '0' not pending or no longer ours
-- Atomic because a result may be stored only if the entry was still this worker's to settle.
local stream, notices, group, consumer, has_ackdel = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
-- with parts/settle
-- with parts/announce
-- with parts/add_entry
-- with parts/member
-- with parts/gate
-- with parts/free_slots
local ids = {}
for i = 6, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
local flags = settle(ids)
for i, flag in ipairs(flags) do
    local result = ARGV[5 + 2 * i]
    if flag == '1' and result ~= '' then
        -- If there is no memory for the result, the job must not run again for that.
        redis.pcall('SET', KEYS[3 + i], result, 'EX', ARGV[4])
    end
end
announce(ARGV[5], ARGV[4])
free_slots(KEYS[3], ids, flags)
return table.concat(flags)
