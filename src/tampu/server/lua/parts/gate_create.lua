-- create_gate(key, kept): give the queue a gate, and tell its workers; does nothing if it has one.
-- Call it after the first write of the script that may be refused.
local function create_gate(key, kept)
    if redis.call('EXISTS', key) == 1 then return end
    -- The long field makes a table of it at once, in which a field is found in one step.
    redis.call('HSET', key .. ':run', '', string.rep('-', 80))
    redis.call('HSET', key .. ':held', '', string.rep('-', 80))
    redis.call('HSET', key, 'levels', '5', 'room', 0, 'flags', '', 'waiting', 0)
    if redis.call('EXISTS', stream) == 0 then
        redis.call('XDEL', stream, redis.call('XADD', stream, '*', 'd', ''))
    end
    redis.call('XADD', control, 'MAXLEN', '~', 1000, '*', 'op', 'gate')
    redis.call('PEXPIRE', control, kept)
end
-- undeclared(key, from, count): the refusal of a limit in ARGV that has no definition, there or in the
-- queue; nil if all are known. They are there in turns: name, definition ('': declared elsewhere).
local function undeclared(key, from, count)
    for i = from, from + 2 * count - 1, 2 do
        if ARGV[i + 1] == '' and redis.call('HEXISTS', key .. ':limits', ARGV[i]) == 0 then
            return redis.error_reply('NOLIMIT ' .. ARGV[i])
        end
    end
end
-- declare(key, from, count): store those limits that the queue does not have yet; the flag 'r' if one
-- of them is a rate.
local function declare(key, from, count)
    if count == 0 then return '' end
    local names, flag = {}, ''
    for i = from, from + 2 * count - 1, 2 do names[#names + 1] = ARGV[i] end
    local found, new = redis.call('HMGET', key .. ':limits', unpack(names)), {}
    for i = 1, #names do
        local text = found[i] or ARGV[from + 2 * i - 1]
        if string.find(text, '^%d+ [1-9]') then flag = 'r' end
        if not found[i] and text ~= '' then  -- '': whoever declares it knows
            new[#new + 1], new[#new + 2] = names[i], text
            new[#new + 1], new[#new + 2] = '=' .. names[i], text
        end
    end
    if #new > 0 then redis.call('HSET', key .. ':limits', unpack(new)) end
    return flag
end
-- add_flags(key, wanted): note that these are in use from now on.
local function add_flags(key, wanted)
    local flags = redis.call('HGET', key, 'flags')
    local all = flags
    for flag in string.gmatch(wanted, '.') do
        if not string.find(all, flag, 1, true) then all = all .. flag end
    end
    if all ~= flags then redis.call('HSET', key, 'flags', all) end
end
-- set_weight(key, line, weight, days): the weight of a line's key, unless somebody has set another one.
-- It is kept for so many days, with the day when that ends; a weight of 1 needs no entry.
local WEIGHT_DAYS = 30  -- of a key that has jobs
local function set_weight(key, line, weight, days)
    local weight_of = string.match(line, '^./([^|]*)')
    local stored = redis.call('HGET', key .. ':weight', weight_of)
    if stored and string.sub(stored, 1, 1) == '=' then return end
    if tonumber(weight) == 1 then
        if stored then redis.call('HDEL', key .. ':weight', weight_of) end
        return
    end
    local last = math.floor(redis.call('TIME')[1] / 86400) + days
    local text = weight .. ' ' .. string.format('%.0f', last)
    if text ~= stored then redis.call('HSET', key .. ':weight', weight_of, text) end
end
