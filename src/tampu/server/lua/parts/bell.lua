-- first_due(): when the first job of `delayed` is due, nil if there is none; asked before any is put.
-- ring(before, due): have whoever promotes look again, if `due` lies before all that were there.
-- A bell that cannot be rung fails nobody: the promoter looks from time to time anyway.
local function first_due()
    return tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2])
end
local function ring(before, due)
    if not due or before and due >= before then return end
    redis.pcall('LPUSH', bell, '1')
    redis.pcall('LTRIM', bell, 0, 0)
    redis.pcall('PEXPIRE', bell, 60000)
end
