#!lua flags=allow-oom
-- finish: settle entries whose handlers returned: acknowledge, delete, keep the result.
-- KEYS  1 stream   2 notices (stream)   3.. where each entry's result goes
-- ARGV  1 group   2 consumer that must own the entries ('': any)   3 s to keep results
--       4 notice to those who wait for results ('': none)
--       5.. for each entry  its id, the result ('': none)
-- reply a text of one letter an entry: '1' settled, '0' it was not pending or not ours any more
-- Atomic because a result may only be kept if the entry was still this worker's to settle.
local stream, notices, group, consumer = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local letters = {}
for i = 5, #ARGV, 2 do
    local id, settled = ARGV[i], '0'
    if (consumer == '' or #redis.call('XPENDING', stream, group, id, id, 1, consumer) > 0)
        and redis.call('XACK', stream, group, id) == 1 then
        redis.call('XDEL', stream, id)
        settled = '1'
        if ARGV[i + 1] ~= '' then
            -- A server without memory for the result must not make the job run again.
            redis.pcall('SET', KEYS[(i + 1) / 2], ARGV[i + 1], 'EX', ARGV[3])
        end
    end
    letters[#letters + 1] = settled
end
if ARGV[4] ~= '' then
    redis.pcall('XADD', notices, 'MAXLEN', '~', 1000, '*', 'ids', ARGV[4])
    redis.pcall('EXPIRE', notices, ARGV[3])
end
return table.concat(letters)
