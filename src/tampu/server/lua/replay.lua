-- replay: put dead letters back on the queue.
-- KEYS  1 dead letters (stream)   2 stream   3.. what is kept of each job's failure
-- ARGV  1.. for each dead letter  its id, envelope, name, extras
-- reply a text of one letter a dead letter: '1' put back, '0' it was not there any more
-- Atomic because each must be put back once, however many replay at the same time.
local dead, stream, letters = KEYS[1], KEYS[2], {}
-- with parts/put
redis.call('XLEN', stream)  -- fails before anything is written if it is not what it should be
for i = 1, #ARGV, 4 do
    local id, body, name, extras = unpack(ARGV, i, i + 3)
    local there = '0'
    if redis.call('XDEL', dead, id) == 1 then
        there = '1'
        put(body, name, extras)
        redis.call('DEL', KEYS[2 + (i + 3) / 4])
    end
    letters[#letters + 1] = there
end
return table.concat(letters)
