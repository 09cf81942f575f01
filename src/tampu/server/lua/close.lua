#!lua flags=allow-oom
-- close: settle entries of jobs that hold markers or were cancelled: acknowledge, delete, free.
-- KEYS  1 stream   2 notices (stream)   3 requests to cancel (sorted set)   4 gate (hash)
--       5.. for each entry  the key for its result or failure if it has one, its markers
-- ARGV  1 group   2 consumer that must hold the entries ('': any)   3 '1' if the server has XACKDEL
--       4 s to keep results   5 notice for callers who wait for results ('': none)
--       6.. for each entry  its id, its result or failure ('': none), the kinds of its markers,
--           the id of its job, the request to cancel it ('': none),
--           its run, if it may have a stream ('': no), '1' if the value is a failure
-- reply one flag per entry: '1' settled, '0' not pending or no longer ours
-- Atomic because what a job holds is freed if and only if its entry was still ours to settle.
local stream, notices, requests = KEYS[1], KEYS[2], KEYS[3]
local group, consumer, has_ackdel = ARGV[1], ARGV[2], ARGV[3]
-- with parts/settle
-- with parts/free
-- with parts/announce
-- with parts/end_output
-- with parts/add_entry
-- with parts/member
-- with parts/gate
-- with parts/free_slots
local ids = {}
for i = 6, #ARGV, 7 do ids[#ids + 1] = ARGV[i] end
local flags, key = settle(ids), 4
for n, flag in ipairs(flags) do
    local _, value, kinds, holder, request, run, failed = unpack(ARGV, 7 * n - 1, 7 * n + 5)
    if value ~= '' then key = key + 1 end
    if flag == '1' then
        if value ~= '' then redis.pcall('SET', KEYS[key], value, 'EX', ARGV[4]) end
        if request ~= '' then redis.call('ZREM', requests, request) end
        if run ~= '' or failed == '1' then end_output(holder, failed == '1' and value or '', ARGV[4], run) end
    end
    key = free(kinds, key, flag == '1' and holder or nil)
end
announce(ARGV[5], ARGV[4])
free_slots(KEYS[4], ids, flags)
return table.concat(flags)
