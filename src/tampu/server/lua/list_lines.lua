-- list_lines: the lines of a queue in which jobs wait, and what each of them waits for.
-- KEYS  1 gate (hash)
-- ARGV  1 most lines
-- reply for each line  its name, how many jobs wait in it, the resource that it waits for ('': its turn)
-- Atomic because a line that comes up meanwhile would be missed, or come twice.
local key, most = KEYS[1], tonumber(ARGV[1])
local reply, count = {}, 0
local function add(line, resource)
    local length = count < most and redis.call('LLEN', key .. ':line:' .. line) or 0
    if length > 0 then
        count = count + 1
        reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = line, length, resource
    end
end
for level in string.gmatch(redis.call('HGET', key, 'levels') or '', '.') do
    for _, line in ipairs(redis.call('ZRANGE', key .. ':ring:' .. level, 0, most)) do add(line, '') end
end
local cursor = '0'
repeat
    local found = redis.call('HSCAN', key .. ':run', cursor, 'COUNT', 500)
    cursor = found[1]
    for i = 1, #found[2], 2 do
        local name, text = found[2][i], found[2][i + 1]
        local line = string.match(text, '%+(.*)$')
        if name ~= '' and line then add(line, name) end
        if name ~= '' and string.sub(text, -1) == '*' then
            for _, each in ipairs(redis.call('ZRANGE', key .. ':wait:' .. name, 0, most)) do add(each, name) end
        end
    end
until cursor == '0' or count >= most
return reply
