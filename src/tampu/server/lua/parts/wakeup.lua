-- first_due(): when the first job of `delayed` is due, nil if there is none. Call it before adding.
-- wake(before, due): wake the promoter, if `due` is before everything that was there.
-- A wakeup that fails is no error: the promoter checks from time to time anyway.
local function first_due()
    return tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2])
end
local function wake(before, due)
    if not due or before and due >= before then return end
    redis.pcall('LPUSH', wakeup, '1')
    redis.pcall('LTRIM', wakeup, 0, 0)
    redis.pcall('PEXPIRE', wakeup, 60000)
end
