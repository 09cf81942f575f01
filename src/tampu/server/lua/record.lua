-- record: move counts into the history, and add times and gauges to it.
-- KEYS  1 counts (hash)   2 totals (hash)   3.. the present step of each resolution (hash)
-- ARGV  1 most tasks in a step   2 gauges ('': none)   3.. s to keep each of KEYS 2..
--       then in turns  the name of a task, its times
-- reply the server's time in ms
-- Atomic because a count must be either among the counts or in the history, whoever dies in between.
local kinds = {d = 1, f = 2, r = 3, x = 4, s = 5, c = 6}
local only_totals = {u = 'unknown', b = 'dead:'}
local most, records = tonumber(ARGV[1]), #KEYS - 1

local function add_histogram(into, from)
    local at, n = {}, #into
    for i = 1, n, 2 do at[into[i]] = i + 1 end
    for i = 1, #from, 2 do
        local place = at[from[i]]
        if place then
            into[place] = into[place] + from[i + 1]
        else
            into[n + 1], into[n + 2], n = from[i], from[i + 1], n + 2
        end
    end
end

local function add(into, from)
    for i = 1, 8 do into[i] = into[i] + from[i] end
    add_histogram(into[9], from[9])
    add_histogram(into[10], from[10])
end

local tasks, order = {}, {}
local function figures_of(name)
    if not tasks[name] then
        tasks[name] = {0, 0, 0, 0, 0, 0, 0, 0, {}, {}}
        order[#order + 1] = name
    end
    return tasks[name]
end

-- Instants of schedules, by kind: keys and counts in turns, and how many others there were.
local instants = {i = {field = 'fires', others = 0}, m = {field = 'missed', others = 0}}
local function note_instants(of, key, count)
    if #of < 2 * most then
        of[#of + 1], of[#of + 2] = key, count
    else
        of.others = of.others + count
    end
end

local counted = redis.call('HGETALL', KEYS[1])
for i = 1, #counted, 2 do
    local kind, name, count = string.sub(counted[i], 1, 1), string.sub(counted[i], 2), counted[i + 1]
    if kinds[kind] then
        local figures = figures_of(name)
        figures[kinds[kind]] = figures[kinds[kind]] + count
    elseif instants[kind] then
        if kind == 'm' then redis.call('HINCRBY', KEYS[2], 'missed', count) end
        note_instants(instants[kind], name, tonumber(count))
    else
        local field = only_totals[kind] and only_totals[kind] .. name or 'unknown'
        redis.call('HINCRBY', KEYS[2], field, count)
    end
end
for _, of in pairs(instants) do
    if of.others > 0 then of[#of + 1], of[#of + 2] = '', of.others end
end
for i = 3 + records, #ARGV, 2 do
    local figures, times = figures_of(ARGV[i]), cmsgpack.unpack(ARGV[i + 1])
    figures[7], figures[8] = figures[7] + times[1], figures[8] + times[2]
    add_histogram(figures[9], times[3])
    add_histogram(figures[10], times[4])
end

for record = 2, #KEYS do
    local key = KEYS[record]
    local known = #order > 0 and redis.call('HLEN', key)
    local is_new = known == 0  -- or may be
    for _, name in ipairs(order) do
        local field = ':' .. name
        local before = redis.call('HGET', key, field)
        if not before and known >= most then
            field = ':other'
            before = redis.call('HGET', key, field)
        end
        local figures = tasks[name]
        if before then
            local merged = cmsgpack.unpack(before)
            add(merged, figures)
            figures = merged
        else
            known = known + 1
        end
        redis.call('HSET', key, field, cmsgpack.pack(figures))
    end
    if ARGV[2] ~= '' and record > 2 then
        local last, before = cmsgpack.unpack(ARGV[2]), redis.call('HGET', key, 'gauges')
        is_new = is_new or not before
        local highest = before and cmsgpack.unpack(before)[2] or last
        for i, value in ipairs(last) do highest[i] = math.max(highest[i] or 0, value) end
        redis.call('HSET', key, 'gauges', cmsgpack.pack({last, highest}))
    end
    for _, of in pairs(record == 3 and instants or {}) do  -- only minutes tell which schedules
        if #of > 0 then
            local before = redis.call('HGET', key, of.field)
            local merged = before and cmsgpack.unpack(before) or {}
            add_histogram(merged, of)
            redis.call('HSET', key, of.field, cmsgpack.pack(merged))
            is_new = is_new or not before
        end
    end
    -- A step is kept for a time from its beginning on, the totals from their last change.
    if is_new or (record == 2 and #counted + #order > 0) then
        redis.call('EXPIRE', key, ARGV[1 + record])
    end
end
if #counted > 0 then redis.call('DEL', KEYS[1]) end
local time = redis.call('TIME')
return time[1] * 1000 + math.floor(time[2] / 1000)
