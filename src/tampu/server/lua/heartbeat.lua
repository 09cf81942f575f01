#!lua flags=allow-oom
-- heartbeat: write the heartbeat of a worker, and renew its leases on the entries it holds.
-- KEYS  1 stream   2 heartbeat
-- ARGV  1 group   2 consumer   3 the heartbeat   4 ms that it lasts
--       5 ms that an entry must have been idle to be renewed   6 most entries to renew
-- reply {ms that the last heartbeat had left (-2: it had expired), how many leases were renewed}
-- Atomic because an entry that another worker has taken over must not be claimed back.
local stream, heartbeat = KEYS[1], KEYS[2]
local left = redis.call('PTTL', heartbeat)
local held = redis.pcall('XPENDING', stream, ARGV[1], 'IDLE', ARGV[5], '-', '+', ARGV[6], ARGV[2])
local renewed = 0
if not held.err and #held > 0 then
    local ids = {}
    for i, entry in ipairs(held) do ids[i] = entry[1] end
    ids[#ids + 1] = 'JUSTID'
    redis.call('XCLAIM', stream, ARGV[1], ARGV[2], 0, unpack(ids))
    renewed = #held
end
-- Also if there is none yet: after a write, Redis 6.2 allows the others at its memory limit too.
redis.call('PEXPIRE', heartbeat, ARGV[4])
if redis.call('GET', heartbeat) ~= ARGV[3] then
    redis.call('SET', heartbeat, ARGV[3], 'PX', ARGV[4])
end
return { left, renewed }
