-- add_entry(body, name, extras, expired): add an entry to `stream` and return its id; '' means no such
-- field. `expired`: of a job that is only to be buried.
local function add_entry(body, name, extras, expired)
    if expired then
        return redis.call('XADD', stream, '*', 'd', body, 'n', name, 'x', extras, 'e', '1')
    elseif name ~= '' and extras ~= '' then
        return redis.call('XADD', stream, '*', 'd', body, 'n', name, 'x', extras)
    elseif name ~= '' then
        return redis.call('XADD', stream, '*', 'd', body, 'n', name)
    elseif extras ~= '' then
        return redis.call('XADD', stream, '*', 'd', body, 'x', extras)
    else
        return redis.call('XADD', stream, '*', 'd', body)
    end
end
