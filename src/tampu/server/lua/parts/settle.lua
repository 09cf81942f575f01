-- settle(ids): acknowledge and delete entries of `stream` in `group`; a letter for each of them:
-- '1' settled, '0' it was not pending, or not held by `consumer` any more where there is one.
-- `quick` is '1' where the server has one command for all of them.
local function settle(ids)
    local letters, settled = {}, {}
    if quick == '1' and consumer == '' then
        for i, code in ipairs(redis.call('XACKDEL', stream, group, 'IDS', #ids, unpack(ids))) do
            letters[i] = code == 1 and '1' or '0'
        end
        return letters
    end
    for i, id in ipairs(ids) do
        letters[i] = '0'
        if (consumer == '' or #redis.call('XPENDING', stream, group, id, id, 1, consumer) > 0)
            and redis.call('XACK', stream, group, id) == 1 then
            letters[i] = '1'
            settled[#settled + 1] = id
        end
    end
    if #settled > 0 then redis.call('XDEL', stream, unpack(settled)) end
    return letters
end
