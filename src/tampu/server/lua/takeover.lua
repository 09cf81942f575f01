#!lua flags=allow-oom
-- takeover: take the entries of a dead worker.
-- KEYS  1 stream   2 heartbeat of that worker   3 gate (hash)
-- ARGV  1 group   2 consumer that takes   3 consumer that is dead
--       4 the heartbeat it was judged by ('': none)   5 ms that an entry must have been idle
--       6 most entries to take   7 most ms that the heartbeat may have left
-- reply for each entry  {id, its fields, how often it has been delivered, including this time};
--       nothing if the worker has written a heartbeat since
-- Atomic because neither the worker itself nor a second taker may get the same entries.
-- with parts/give_up_room
local stream, heartbeat, group, taker, dead = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
if (redis.call('GET', heartbeat) or '') ~= ARGV[4] then return {} end
if redis.call('PTTL', heartbeat) > tonumber(ARGV[7]) then return {} end
-- Without it, the worker learns at its next heartbeat that its leases have lapsed.
redis.call('DEL', heartbeat)
give_up_room(KEYS[3], dead)
local held = redis.call('XPENDING', stream, group, 'IDLE', ARGV[5], '-', '+', ARGV[6], dead)
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
