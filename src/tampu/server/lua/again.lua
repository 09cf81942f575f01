#!lua flags=allow-oom
-- again: settle entries whose jobs are to run again: now, or after a wait.
-- KEYS  1 stream   2 delayed (sorted set)
-- ARGV  1 group   2 consumer that must own the entries ('': any)
--       3.. for each entry  its id, ms to wait ('': run now),
--           envelope (to wait: delayed member), name, extras
-- reply a text of one letter an entry: '1' settled, '0' it was not pending or not ours any more
-- Atomic because a job must be either in the old place or in the new one, whoever dies in between.
local stream, delayed, group, consumer = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZCARD', delayed)  -- fails before anything is written if it is not what it should be
local letters = {}
for i = 3, #ARGV, 5 do
    local id, wait, body, name, extras = unpack(ARGV, i, i + 4)
    local settled = '0'
    if (consumer == '' or #redis.call('XPENDING', stream, group, id, id, 1, consumer) > 0)
        and redis.call('XACK', stream, group, id) == 1 then
        redis.call('XDEL', stream, id)
        settled = '1'
        if wait ~= '' then
            redis.call('ZADD', delayed, string.format('%.0f', now + wait), body)
        else
            local fields = { 'd', body }
            if name ~= '' then fields[3] = 'n'; fields[4] = name end
            if extras ~= '' then
                fields[#fields + 1] = 'x'; fields[#fields + 1] = extras
            end
            redis.call('XADD', stream, '*', unpack(fields))
        end
    end
    letters[#letters + 1] = settled
end
return table.concat(letters)
