-- drop(member, ttl): a job that waited runs no more: what it holds is free, and callers who wait for
-- it learn that; returns its id. After `member` and `end_output`. `tag` is what all keys of the queue begin with.
-- announce_dropped(ids, ttl): tell them at once; after `announce`.
local CANCELLED = cmsgpack.pack({ 'cancelled', '', '', '' })
local function drop(member, ttl)
    local _, envelope, extras = split_job(member)
    local id = job_id_of(envelope)
    if #id ~= 26 then redis.call('DEL', tag .. ':dlid:' .. id, tag .. ':didx:' .. id) end
    if string.find(extras, '\166unique', 1, true) then
        local read, fields = pcall(cmsgpack.unpack, extras)
        local held = read and type(fields.unique) == 'table' and fields.unique[1]
        local key = held and tag .. ':tampu:unique:' .. held
        if key and redis.call('GET', key) == id then redis.call('DEL', key) end
    end
    redis.pcall('SET', tag .. ':tampu:failure:' .. id, CANCELLED, 'EX', ttl)
    end_output(id, CANCELLED, ttl)
    return id
end
local function announce_dropped(ids, ttl)
    if #ids > 0 then announce(cmsgpack.pack(ids), ttl) end
end
