#!lua flags=allow-oom
-- purge: delete jobs that no worker has read yet.
-- KEYS  1 stream
-- ARGV  1 most entries to delete
-- reply the envelope of each deleted entry, '' for one without
-- Atomic because a worker may read in between, and a job that it runs must not be deleted.
local stream = KEYS[1]
if redis.call('EXISTS', stream) == 0 then return {} end

local function split_id(id)
    local ms, number = id:match('^(%d+)%-(%d+)$')
    return tonumber(ms), tonumber(number)
end

-- The last entry that was delivered to any group; the entries after it are waiting.
local last, last_ms, last_number = '0-0', 0, 0
for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    for i = 1, #group, 2 do
        if group[i] == 'last-delivered-id' then
            local ms, number = split_id(group[i + 1])
            if ms > last_ms or (ms == last_ms and number > last_number) then
                last, last_ms, last_number = group[i + 1], ms, number
            end
        end
    end
end

local ids, bodies = {}, {}
for _, entry in ipairs(redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', ARGV[1])) do
    local body = ''
    for i = 1, #entry[2], 2 do
        if entry[2][i] == 'd' then body = entry[2][i + 1] end
    end
    ids[#ids + 1] = entry[1]
    bodies[#bodies + 1] = body
end
if #ids > 0 then redis.call('XDEL', stream, unpack(ids)) end
return bodies
