-- lease_end(ms): the instant in `ms` from now, by the server's clock.
local function lease_end(ms)
    local time = redis.call('TIME')
    return string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ms)
end
