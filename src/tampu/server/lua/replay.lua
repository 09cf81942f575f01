-- replay: put dead letters back on the queue.
-- KEYS  1 dead letters (stream)   2 stream   3.. the stored failure of each job
-- ARGV  1.. for each dead letter  its id, envelope, name, extras
-- reply one flag per dead letter: '1' replayed, '0' it no longer existed
-- Atomic because each letter must be replayed once, however many processes replay.
local dead, stream, flags = KEYS[1], KEYS[2], {}
-- with parts/add_entry
redis.call('XLEN', stream)  -- fails on a key of a wrong type, before anything is written
for i = 1, #ARGV, 4 do
    local id, body, name, extras = unpack(ARGV, i, i + 3)
    local flag = '0'
    if redis.call('XDEL', dead, id) == 1 then
        flag = '1'
        add_entry(body, name, extras)
        redis.call('DEL', KEYS[2 + (i + 3) / 4])
    end
    flags[#flags + 1] = flag
end
return table.concat(flags)
