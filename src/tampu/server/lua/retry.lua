#!lua flags=allow-oom
-- retry: settle entries whose jobs run again, now or after a wait.
-- KEYS  1 stream   2 delayed (sorted set)   3 wakeup (list)
--       4.. for each job whose id a user chose  its index, the marker of its id
-- ARGV  1 group   2 consumer that must hold the entries ('': any)   3 '1' if the server has XACKDEL
--       4.. for each entry  its id, ms to wait ('': run now),
--           envelope (to wait: delayed member), name, extras,
--           s to keep its index ('': our own id, so that it has none)
-- reply one flag per entry: '1' settled, '0' not pending or no longer ours
-- Atomic because a job must be either in the old place or in the new one, whoever dies in between.
local stream, delayed, wakeup = KEYS[1], KEYS[2], KEYS[3]
local group, consumer, has_ackdel = ARGV[1], ARGV[2], ARGV[3]
-- with parts/settle
-- with parts/add_entry
-- with parts/wakeup
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local before, earliest = first_due(), nil  -- fails on a wrong type, before anything is written
local ids = {}
for i = 4, #ARGV, 6 do ids[#ids + 1] = ARGV[i] end
local flags, key = settle(ids), 3
for i, flag in ipairs(flags) do
    local _, wait, body, name, extras, index = unpack(ARGV, 6 * i - 2, 6 * i + 3)
    if index ~= '' then key = key + 2 end
    if flag == '1' then
        if wait == '' then
            local entry = add_entry(body, name, extras)
            if index ~= '' then redis.pcall('SET', KEYS[key], entry, 'XX', 'KEEPTTL') end
        else
            local at = now + wait
            redis.call('ZADD', delayed, string.format('%.0f', at), body)
            if index ~= '' then redis.pcall('SET', KEYS[key - 1], body, 'EX', index) end
            if not earliest or at < earliest then earliest = at end
        end
    end
end
wake(before, earliest)
return table.concat(flags)
