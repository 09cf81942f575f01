#!lua flags=allow-oom
-- audit: free what entries hold that were settled by a peer, which knows nothing of the gate; count
-- the room that workers and peers really have, and who has no heartbeat has none; forget weights that
-- nobody has used for long.
-- KEYS  1 stream   2 gate (hash)
-- ARGV  1 group   2 cursor ('0': from the start)   3 about how many entries to look at
-- reply {the next cursor ('0': that was all), how many entries held something} | {}: there is no gate
-- Atomic because an entry that is settled meanwhile must not be counted twice.
local stream, key, group = KEYS[1], KEYS[2], ARGV[1]
-- with parts/add_entry
-- with parts/member
-- with parts/gate
if redis.call('EXISTS', key) == 0 then return {} end
if ARGV[2] == '0' then
    local heartbeat = string.sub(key, 1, -5) .. 'worker:'
    -- What peers hold of the stream takes none of the room of our workers.
    local wanted, peers, room = redis.call('HGETALL', key .. ':want'), 0, 0
    local known = {}
    for i = 1, #wanted, 2 do
        if wanted[i] ~= '' and redis.call('EXISTS', heartbeat .. wanted[i]) == 0 then
            redis.call('HDEL', key .. ':want', wanted[i])  -- it died after others had forgotten it
        elseif wanted[i] ~= '' then
            known[wanted[i]] = true
            room = room + wanted[i + 1]
        end
    end
    local found = redis.pcall('XPENDING', stream, group)
    for _, consumer in ipairs(not found.err and found[4] or {}) do
        if not known[consumer[1]] then peers = peers + consumer[2] end
    end
    if room == 0 then peers = 0 end
    if peers > 0 then redis.call('HSET', key .. ':want', '', peers)
    else redis.call('HDEL', key .. ':want', '') end
    redis.call('HSET', key, 'room', room + peers)
end
-- Some weights are looked at each time: in a queue with many old ones, most of these are.
local today, sample = redis.call('TIME')[1] / 86400, redis.call('HRANDFIELD', key .. ':weight', 20, 'WITHVALUES')
for i = 1, #sample, 2 do
    local last = string.match(sample[i + 1], '^[^=]%S* (%d+)$')
    if last and tonumber(last) < today then redis.call('HDEL', key .. ':weight', sample[i]) end
end
local reply = redis.call('HSCAN', key .. ':held', ARGV[2], 'COUNT', ARGV[3])
local gone = {}
for i = 1, #reply[2], 2 do
    local id = reply[2][i]
    if id ~= '' and #redis.call('XRANGE', stream, id, id) == 0 then gone[#gone + 1] = id end
end
local gate = open_gate(key)
gate.let_go(gone)
gate.pass()
return { reply[1], #gone }
