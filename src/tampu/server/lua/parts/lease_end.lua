-- lease_end(ms): the instant at which a lease of so many ms ends that begins now.
local function lease_end(ms)
    local time = redis.call('TIME')
    return string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ms)
end
