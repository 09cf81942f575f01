#!lua flags=allow-oom
-- finish: settle entries whose handlers returned: acknowledge, delete, keep the result.
-- KEYS  1 stream   2 notices (stream)   3.. where each entry's result goes
-- ARGV  1 group   2 consumer that must own the entries ('': any)   3 '1' if the server has XACKDEL
--       4 s to keep results   5 notice to those who wait for results ('': none)
--       6.. for each entry  its id, the result ('': none)
-- reply a text of one letter an entry: '1' settled, '0' it was not pending or not ours any more
-- Atomic because a result may only be kept if the entry was still this worker's to settle.
local stream, notices, group, consumer, quick = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
-- with parts/settle
local ids = {}
for i = 6, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
local letters = settle(ids)
for i, letter in ipairs(letters) do
    local result = ARGV[5 + 2 * i]
    if letter == '1' and result ~= '' then
        -- A server without memory for the result must not make the job run again.
        redis.pcall('SET', KEYS[2 + i], result, 'EX', ARGV[4])
    end
end
if ARGV[5] ~= '' then
    redis.pcall('XADD', notices, 'MAXLEN', '~', 1000, '*', 'ids', ARGV[5])
    redis.pcall('EXPIRE', notices, ARGV[4])
end
return table.concat(letters)
