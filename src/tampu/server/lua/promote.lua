#!lua flags=allow-oom
-- promote: move delayed jobs that are due to the stream.
-- KEYS  1 delayed (sorted set)   2 stream   3 dead letters (stream)   4 events (stream)
-- ARGV  1 most jobs to move   2 most events to keep (0: write none)
-- reply {how many were moved, how many stay, ms until the next is due (-1: none stays),
--        id, name, ... of those moved}; an id that cannot be told is ''
-- Atomic because a job must be in one place only, and a cancellation must find it or miss it; and
-- because a worker may tell that it runs a job as soon as the job is on the stream.
local delayed, stream, dead, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- with parts/put
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('XLEN', stream)  -- these fail before anything is written if they are not what they should be
redis.call('XLEN', dead)
local due = redis.call('ZRANGEBYSCORE', delayed, '-inf', string.format('%.0f', now), 'LIMIT', 0, ARGV[1])

local function id_of(envelope)
    local head, length = string.byte(envelope, 2, 3)
    if not head then return '' end
    if head >= 0xa0 and head <= 0xbf then return string.sub(envelope, 3, head - 0xa0 + 2) end
    if head == 0xd9 and length then return string.sub(envelope, 4, 3 + length) end
    if head == 0xda then
        local high, low = string.byte(envelope, 3, 4)
        return low and string.sub(envelope, 5, 4 + high * 256 + low) or ''
    end
    return ''
end

local reply, moved, stamp = { 0, 0, -1 }, 0, string.format('%.0f', now)
for _, member in ipairs(due) do
    -- First, so that Redis 6.2 lets the rest be done at its memory limit too.
    redis.call('ZREM', delayed, member)
    local a, b, c, d = string.byte(member, 1, 4)
    local start = d and 5 + a + b * 256 + c * 65536 + d * 16777216
    if not start or start > #member then
        -- No job can be made of it: set it aside, so that it stops nobody else.
        redis.call('XADD', dead, '*', 'd', member, 'source_id', '', 'reason', 'malformed',
            'detail', 'a delayed member without an envelope')
    else
        local name, envelope = string.sub(member, 5, start - 1), string.sub(member, start)
        local id = id_of(envelope)
        put(envelope, name, '')
        moved = moved + 1
        reply[#reply + 1] = id
        reply[#reply + 1] = name
        if ARGV[2] == '0' then
            -- nobody listens
        elseif name == '' then
            redis.pcall('XADD', events, '*', 'e', 'waiting', 'id', id, 'ts', stamp)
        else
            redis.pcall('XADD', events, '*', 'e', 'waiting', 'id', id, 'ts', stamp, 'n', name)
        end
    end
end
if moved > 0 and ARGV[2] ~= '0' then redis.pcall('XTRIM', events, 'MAXLEN', '~', ARGV[2]) end
reply[1] = moved
reply[2] = redis.call('ZCARD', delayed)
local next_due = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2]
if next_due then reply[3] = math.max(0, math.ceil(tonumber(next_due) - now)) end
return reply
