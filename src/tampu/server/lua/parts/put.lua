-- put(body, name, extras): add an entry to `stream`, whose id it gives; what is '' is left out.
local function put(body, name, extras)
    if name ~= '' and extras ~= '' then
        return redis.call('XADD', stream, '*', 'd', body, 'n', name, 'x', extras)
    elseif name ~= '' then
        return redis.call('XADD', stream, '*', 'd', body, 'n', name)
    elseif extras ~= '' then
        return redis.call('XADD', stream, '*', 'd', body, 'x', extras)
    else
        return redis.call('XADD', stream, '*', 'd', body)
    end
end
