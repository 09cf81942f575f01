#!lua flags=allow-oom
-- retry: settle entries whose jobs are to run again: now, or after a wait.
-- KEYS  1 stream   2 delayed (sorted set)   3 bell
-- ARGV  1 group   2 consumer that must own the entries ('': any)   3 '1' if the server has XACKDEL
--       4.. for each entry  its id, ms to wait ('': run now),
--           envelope (to wait: delayed member), name, extras
-- reply a text of one letter an entry: '1' settled, '0' it was not pending or not ours any more
-- Atomic because a job must be either in the old place or in the new one, whoever dies in between.
local stream, delayed, bell = KEYS[1], KEYS[2], KEYS[3]
local group, consumer, quick = ARGV[1], ARGV[2], ARGV[3]
-- with parts/settle
-- with parts/put
-- with parts/bell
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local before, earliest = first_due(), nil  -- fails before anything is written if it is no sorted set
local ids = {}
for i = 4, #ARGV, 5 do ids[#ids + 1] = ARGV[i] end
local letters = settle(ids)
for i, letter in ipairs(letters) do
    if letter == '1' then
        local _, wait, body, name, extras = unpack(ARGV, 5 * i - 1, 5 * i + 3)
        if wait == '' then
            put(body, name, extras)
        else
            local at = now + wait
            redis.call('ZADD', delayed, string.format('%.0f', at), body)
            if not earliest or at < earliest then earliest = at end
        end
    end
end
ring(before, earliest)
return table.concat(letters)
