-- is_waiting(id): whether no group has been given an entry of `stream` yet.
-- is_pending(id): whether a consumer holds it.
local function split_id(id)
    local ms, number = string.match(id, '^(%d+)%-(%d+)$')
    return tonumber(ms), tonumber(number)
end
local last_ms, last_number, groups = 0, 0, {}
if redis.call('EXISTS', stream) == 1 then
    for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
        for i = 1, #group, 2 do
            if group[i] == 'name' then groups[#groups + 1] = group[i + 1] end
            if group[i] == 'last-delivered-id' then
                local ms, number = split_id(group[i + 1])
                if ms > last_ms or (ms == last_ms and number > last_number) then
                    last_ms, last_number = ms, number
                end
            end
        end
    end
end
local function is_waiting(id)
    local ms, number = split_id(id)
    return ms > last_ms or (ms == last_ms and number > last_number)
end
local function is_pending(id)
    for _, group in ipairs(groups) do
        if #redis.call('XPENDING', stream, group, id, id, 1) > 0 then return true end
    end
    return false
end
