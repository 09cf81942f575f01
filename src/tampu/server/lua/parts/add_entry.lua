-- add_entry(body, name, extras): add an entry to `stream` and return its id; '' means no such field.
local function add_entry(body, name, extras)
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
