-- give_up_room(key, consumer): a worker that is dead can have no entries.
local function give_up_room(key, consumer)
    local before = redis.call('HGET', key .. ':want', consumer)
    if before then
        redis.call('HDEL', key .. ':want', consumer)
        redis.call('HINCRBY', key, 'room', -before)
    end
end
