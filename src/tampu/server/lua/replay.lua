-- replay: put dead letters back on the queue.
-- KEYS  1 dead letters (stream)   2 stream   3.. what is kept of each job's failure
-- ARGV  1.. for each dead letter  its id, envelope, name, extras
-- reply a text of one letter a dead letter: '1' put back, '0' it was not there any more
-- Atomic because each must be put back once, however many replay at the same time.
local dead, stream, letters = KEYS[1], KEYS[2], {}
redis.call('XLEN', stream)  -- fails before anything is written if it is not what it should be
for i = 1, #ARGV, 4 do
    local id, body, name, extras = unpack(ARGV, i, i + 3)
    local there = '0'
    if redis.call('XDEL', dead, id) == 1 then
        there = '1'
        local fields = { 'd', body }
        if name ~= '' then fields[3] = 'n'; fields[4] = name end
        if extras ~= '' then
            fields[#fields + 1] = 'x'; fields[#fields + 1] = extras
        end
        redis.call('XADD', stream, '*', unpack(fields))
        redis.call('DEL', KEYS[2 + (i + 3) / 4])
    end
    letters[#letters + 1] = there
end
return table.concat(letters)
