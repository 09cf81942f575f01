-- write_chunks: add to the streams of running jobs; a repeated call adds nothing.
-- KEYS  1.. for each job  its stream
-- ARGV  1 most chunks that a stream keeps, about   2 s that a stream is kept after its last chunk
--       3.. for each job  its run, its attempt, the number of its first chunk,
--           every so many chunks the worker asks to be told when they are read (0: never),
--           how many chunks follow, the chunks
-- reply 'OK', also if chunks were there already, or a later run makes them void
-- Atomic because a stream must never exist without an expiry.
local i = 3
for _, key in ipairs(KEYS) do
    local run, attempt, number, every, size = unpack(ARGV, i, i + 4)
    number, every = tonumber(number), tonumber(every)
    local grows = false
    for at = 1, size do
        local id = string.format('%s-%.0f', run, number + at - 1)
        local value, added = ARGV[i + 4 + at], nil
        if every > 0 and (number + at - 1) % every == 0 then
            added = redis.pcall('XADD', key, 'MAXLEN', '~', ARGV[1], id, 'a', attempt, 'v', value, 'q', '1')
        else
            added = redis.pcall('XADD', key, 'MAXLEN', '~', ARGV[1], id, 'a', attempt, 'v', value)
        end
        if type(added) ~= 'table' then
            grows = true
        elseif not string.find(added.err, 'equal or smaller', 1, true)
            and not string.find(added.err, 'WRONGTYPE', 1, true) then
            return added
        end
    end
    if grows then redis.call('EXPIRE', key, ARGV[2]) end
    i = i + 5 + size
end
return 'OK'
