-- list_lines: the lines of a queue in which jobs wait, and what each of them waits for, page by page.
-- KEYS  1 gate (hash)
-- ARGV  1 about how many lines to look at   2 cursor ('': from the start)
-- reply {the next cursor ('': that was all), then for each line  its name, how many jobs wait in it,
--       the resource that it waits for ('': its turn)}; some lines may come twice
-- Atomic because a line that comes up meanwhile would be missed; between pages that can happen.
local key, most, A_SCAN = KEYS[1], tonumber(ARGV[1]), 500
local reply, looked = { '' }, 0
-- The level of the next ring ('-': done), the cursor in it or in the first of `names`, the cursor in
-- `run` ('-': done), and the resources found there for which several lines wait.
local level, cursor, running, rest = string.match(ARGV[2], '^(%S+) (%S+) (%S+) (.*)$')
if not level then level, cursor, running, rest = '9', '0', '0', '' end
local names = {}
for name in string.gmatch(rest, '[^|]+') do names[#names + 1] = name end

local function add(line, resource)
    looked = looked + 1
    local length = redis.call('LLEN', key .. ':line:' .. line)
    if length > 0 then
        reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = line, length, resource
    end
end
local function scan(set, resource)
    local page = redis.call('ZSCAN', key .. set, cursor, 'COUNT', A_SCAN)
    cursor = page[1]
    for i = 1, #page[2], 2 do add(page[2][i], resource) end
end
local function scan_run()
    local page = redis.call('HSCAN', key .. ':run', running, 'COUNT', A_SCAN)
    running = page[1] ~= '0' and page[1] or '-'
    for i = 1, #page[2], 2 do
        local name, text = page[2][i], page[2][i + 1]
        local mark, line = string.match(text, '^%d+([-+])%S+ (.*)$')
        if line then add(mark == '-' and line .. '|' .. name or line, name) end
        if string.match(text, '^%d+%*') then names[#names + 1] = name end
        looked = looked + 1
    end
end
repeat
    if level ~= '-' then
        scan(':ring:' .. level, '')
        if cursor == '0' then level = level == '0' and '-' or tostring(level - 1) end
    elseif names[1] then
        scan(':wait:' .. names[1], names[1])
        if cursor == '0' then table.remove(names, 1) end
    else
        scan_run()
    end
    local is_done = level == '-' and running == '-' and not names[1]
until is_done or looked >= most
if level ~= '-' or running ~= '-' or names[1] then
    reply[1] = table.concat({ level, cursor, running, table.concat(names, '|') }, ' ')
end
return reply
