-- announce(notice, ttl): tell callers who wait for results that jobs have ended; '' for none.
-- If that fails, it is no error: they look at the results when their time is up.
local function announce(notice, ttl)
    if notice ~= '' then
        redis.pcall('XADD', notices, 'MAXLEN', '~', 1000, '*', 'ids', notice)
        redis.pcall('EXPIRE', notices, ttl)
    end
end
