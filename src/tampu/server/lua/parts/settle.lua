-- settle(ids): acknowledge and delete entries of `stream` in `group`; returns a flag for each:
-- '1' settled, '0' not pending, or with a `consumer` no longer held by it.
-- `has_ackdel` is '1' if the server has one command for all of them.
local function settle(ids)
    local flags, settled = {}, {}
    if has_ackdel == '1' and consumer == '' then
        for i, code in ipairs(redis.call('XACKDEL', stream, group, 'IDS', #ids, unpack(ids))) do
            flags[i] = code == 1 and '1' or '0'
        end
        return flags
    end
    for i, id in ipairs(ids) do
        flags[i] = '0'
        if (consumer == '' or #redis.call('XPENDING', stream, group, id, id, 1, consumer) > 0)
            and redis.call('XACK', stream, group, id) == 1 then
            flags[i] = '1'
            settled[#settled + 1] = id
        end
    end
    if #settled > 0 then redis.call('XDEL', stream, unpack(settled)) end
    return flags
end
