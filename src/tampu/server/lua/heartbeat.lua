#!lua flags=allow-oom
-- heartbeat: say that a worker lives, and renew its leases on what it holds.
-- KEYS  1 stream   2 the worker's mark
-- ARGV  1 group   2 consumer   3 mark   4 ms the mark lasts   5 ms of idling that call for renewal
--       6 most entries to renew
-- reply {ms that the mark had left (-2: none was there), how many leases were renewed}
-- Atomic because an entry that another worker has taken over must not be claimed back.
local stream, mark = KEYS[1], KEYS[2]
local left = redis.call('PTTL', mark)
local held = redis.pcall('XPENDING', stream, ARGV[1], 'IDLE', ARGV[5], '-', '+', ARGV[6], ARGV[2])
local renewed = 0
if not held.err and #held > 0 then
    local ids = {}
    for i, entry in ipairs(held) do ids[i] = entry[1] end
    ids[#ids + 1] = 'JUSTID'
    redis.call('XCLAIM', stream, ARGV[1], ARGV[2], 0, unpack(ids))
    renewed = #held
end
if redis.call('GET', mark) == ARGV[3] then
    redis.call('PEXPIRE', mark, ARGV[4])
else
    redis.call('SET', mark, ARGV[3], 'PX', ARGV[4])
end
return { left, renewed }
