-- put(body, name, extras): add an entry to `stream`; what is '' is left out.
local function put(body, name, extras)
    if name ~= '' and extras ~= '' then
        redis.call('XADD', stream, '*', 'd', body, 'n', name, 'x', extras)
    elseif name ~= '' then
        redis.call('XADD', stream, '*', 'd', body, 'n', name)
    elseif extras ~= '' then
        redis.call('XADD', stream, '*', 'd', body, 'x', extras)
    else
        redis.call('XADD', stream, '*', 'd', body)
    end
end
