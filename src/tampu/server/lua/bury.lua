#!lua flags=allow-oom
-- bury: move entries to the dead letters.
-- KEYS  1 stream   2 dead letters (stream)   3 notices (stream)
--       4.. where the failure of each entry that has one goes
-- ARGV  1 group   2 consumer that must own the entries ('': any)   3 most dead letters (0: any)
--       4 s to keep failures   5 notice to those who wait for results ('': none)
--       6.. for each entry  its id, its failure for those who wait ('': none),
--           how many texts follow, the dead letter's fields and values
-- reply a text of one letter an entry: '1' settled, '0' it was not pending or not ours any more
-- Atomic because there must be one dead letter an entry, whoever dies or competes in between.
local stream, dead, group, consumer = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
redis.call('XLEN', dead)  -- fails before anything is written if it is not what it should be
local letters, i, key = {}, 6, 3
while i <= #ARGV do
    local id, failure, texts = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
    local settled = '0'
    if failure ~= '' then key = key + 1 end
    if (consumer == '' or #redis.call('XPENDING', stream, group, id, id, 1, consumer) > 0)
        and redis.call('XACK', stream, group, id) == 1 then
        redis.call('XDEL', stream, id)
        settled = '1'
        redis.call('XADD', dead, '*', unpack(ARGV, i + 3, i + 2 + texts))
        if failure ~= '' then redis.pcall('SET', KEYS[key], failure, 'EX', ARGV[4]) end
    end
    letters[#letters + 1] = settled
    i = i + 3 + texts
end
if ARGV[3] ~= '0' then redis.call('XTRIM', dead, 'MAXLEN', '~', ARGV[3]) end
if ARGV[5] ~= '' then
    redis.pcall('XADD', KEYS[3], 'MAXLEN', '~', 1000, '*', 'ids', ARGV[5])
    redis.pcall('EXPIRE', KEYS[3], ARGV[4])
end
return table.concat(letters)
