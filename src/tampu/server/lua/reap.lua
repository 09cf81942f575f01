#!lua flags=allow-oom
-- reap: remove a dead consumer that holds nothing.
-- KEYS  1 stream   2 heartbeat of its worker   3 gate (hash)
-- ARGV  1 group   2 consumer   3 its last heartbeat, if that is no sign of life ('': it is)
-- reply 1 removed | 0 it is alive, or it holds entries, or it does not exist
-- Atomic because removing a consumer drops the entries that it holds.
-- with parts/give_up_room
local stream, heartbeat = KEYS[1], KEYS[2]
local found = redis.call('GET', heartbeat)
if found and found ~= ARGV[3] then return 0 end
if found then redis.call('DEL', heartbeat) end
give_up_room(KEYS[3], ARGV[2])
local held = redis.pcall('XPENDING', stream, ARGV[1], '-', '+', 1, ARGV[2])
if held.err or #held > 0 then return 0 end
redis.call('XGROUP', 'DELCONSUMER', stream, ARGV[1], ARGV[2])
return 1
