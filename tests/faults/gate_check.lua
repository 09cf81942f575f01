-- The invariants of a gate, all at once: a test's means, it looks at everything.
-- KEYS  1 stream   2 gate (hash)
-- reply {entries that hold something and are gone, jobs that wait in lines, problem, problem, ...}
local stream, key = KEYS[1], KEYS[2]
local call, problems = redis.call, {}
local function complain(...) problems[#problems + 1] = table.concat({ ... }, ' ') end
local function names_of(text)
    local names = {}
    for name in string.gmatch(text, '[^|]+') do names[#names + 1] = name end
    return names
end
local function resources(line)
    local at = string.find(line, '|', 1, true)
    return at and names_of(string.sub(line, at + 1)) or {}
end
local state, over, limits = {}, {}, { ['>'] = 1, ['!'] = 0 }
local flat = call('HGETALL', key)
for i = 1, #flat, 2 do state[flat[i]] = flat[i + 1] end
if not state.levels then return { 0, 0 } end
flat = call('HGETALL', key .. ':over')
for i = 1, #flat, 2 do over[flat[i]] = flat[i + 1] end
flat = call('HGETALL', key .. ':limits')
for i = 1, #flat, 2 do limits[flat[i]] = tonumber(string.match(flat[i + 1], '^%d+')) end
local function limit_of(name)
    local own = over[name] and string.match(over[name], '^%d+')
    return own and tonumber(own) or limits[string.match(name, '^[^:]*')] or 0
end

-- What entries hold is what is counted.
local there, counted, gone = {}, {}, 0
for _, entry in ipairs(call('XRANGE', stream, '-', '+')) do there[entry[1]] = true end
flat = call('HGETALL', key .. ':held')
for i = 1, #flat, 2 do
    if flat[i] ~= '' then
        if not there[flat[i]] then gone = gone + 1 end
        for _, name in ipairs(names_of(flat[i + 1])) do counted[name] = (counted[name] or 0) + 1 end
    end
end
local runs, parked = {}, {}
flat = call('HGETALL', key .. ':run')
for i = 1, #flat, 2 do
    local name, text = flat[i], flat[i + 1]
    if name ~= '' then
        local count, mark, waits = tonumber(string.match(text, '^%d+')), string.match(text, '^%d+([-+])%S+ (.*)$')
        if mark == '-' then waits = waits .. '|' .. name end
        runs[name] = count
        if count ~= (counted[name] or 0) then complain('runs', name, text, 'held', counted[name] or 0) end
        local most = limit_of(name)
        if most > 0 and count > most then complain('too many', name, text, 'limit', most) end
        if waits then parked[waits] = name end
        if string.match(text, '^%d+%*') then
            for _, line in ipairs(call('ZRANGE', key .. ':wait:' .. name, 0, -1)) do parked[line] = name end
        end
    end
end
for name, count in pairs(counted) do
    if not runs[name] then complain('not counted', name, count) end
end
for _, wait in ipairs(call('KEYS', key .. ':wait:*')) do
    local name = string.sub(wait, #key + 7)
    local text = call('HGET', key .. ':run', name) or ''
    if string.sub(text, -1) ~= '*' then complain('lines wait unseen at', name, text) end
end

-- Each line with jobs has its turn, or waits for something that will open.
local claims, total = {}, 0
for _, ring in ipairs(call('KEYS', key .. ':ring:*')) do
    for _, line in ipairs(call('ZRANGE', ring, 0, -1)) do
        for _, name in ipairs(resources(line)) do claims[name] = (claims[name] or 0) + 1 end
    end
end
for _, list in ipairs(call('KEYS', key .. ':line:*')) do
    local line = string.sub(list, #key + 7)
    total = total + call('LLEN', list)
    local turn = call('ZSCORE', key .. ':ring:' .. string.sub(line, 1, 1), line)
    local name = parked[line]
    if not turn and not name then complain('lost line', line) end
    if not turn and name then
        local most = limit_of(name)
        local is_full = most > 0 and (runs[name] or 0) >= most
        local is_paused = string.sub(name, 1, 2) == '!:' and call('HEXISTS', key .. ':pauses', string.sub(name, 3)) == 1
        if not is_full and not is_paused and not claims[name] and not call('ZSCORE', key .. ':wake', name) then
            complain('sleeps for ever', line, 'at', name, runs[name] or 0)
        end
    end
end
if total ~= tonumber(state.waiting) then complain('waiting', state.waiting, 'is', total) end
local room = 0
flat = call('HGETALL', key .. ':want')
for i = 1, #flat, 2 do room = room + flat[i + 1] end
if room ~= tonumber(state.room) then complain('room', state.room, 'is', room) end
return { gone, total, unpack(problems) }
