#!lua flags=allow-oom
-- takeover: take the entries of a worker that is gone.
-- KEYS  1 stream   2 the mark of that worker
-- ARGV  1 group   2 consumer that takes   3 consumer that is gone
--       4 the mark it was judged by ('': it has none)   5 least ms an entry must have idled
--       6 most entries to take   7 most ms the mark may have left
-- reply for each entry  {id, its fields, how often it has been delivered, this time included};
--       nothing if the worker has given a sign of life since
-- Atomic because a worker that comes back, or a second one that takes over, must not get them too.
local stream, mark, group, taker, gone = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
if (redis.call('GET', mark) or '') ~= ARGV[4] then return {} end
if redis.call('PTTL', mark) > tonumber(ARGV[7]) then return {} end
-- Without its mark, the worker knows at its next beat that its leases have lapsed.
redis.call('DEL', mark)
local held = redis.call('XPENDING', stream, group, 'IDLE', ARGV[5], '-', '+', ARGV[6], gone)
local taken = {}
for _, entry in ipairs(held) do
    local id, deliveries = entry[1], entry[4]
    local claimed = redis.call('XCLAIM', stream, group, taker, 0, id)
    if claimed[1] then
        taken[#taken + 1] = { id, claimed[1][2], deliveries + 1 }
    else
        redis.call('XACK', stream, group, id)  -- deleted while it was pending
    end
end
return taken
