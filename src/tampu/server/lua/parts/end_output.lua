-- end_output(id, failure, ttl, run): end the stream of a job: nobody who follows it waits any longer.
-- `failure` says why the job is not done, '' if it is. Without a `run`, '' or nil, this is done only
-- if there is a stream: a job has one as soon as it has yielded something, or somebody follows it.
-- If that fails, it is no error: readers ask about the job when they have heard nothing for long.
local function end_output(id, failure, ttl, run)
    local key = string.sub(stream, 1, -8) .. ':tampu:out:' .. id
    if not run or run == '' then
        local newest = redis.pcall('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
        run = type(newest) == 'table' and string.match(newest[1], '^%d+')
    end
    if run then
        -- The last id of the run: whoever still writes to it is refused.
        redis.pcall('XADD', key, run .. '-18446744073709551615', 'f', failure)
        redis.pcall('EXPIRE', key, math.max(60, ttl))
    end
end
