#!lua flags=allow-oom
-- run_now: move a delayed job to the stream before it is due.
-- KEYS  1 delayed (sorted set)   2 stream   3 events (stream)   4 its index
-- ARGV  1 its member ('': what its index holds)   2 most events to keep (0: write none)
-- reply 1 moved | 0 it was not there
-- Atomic because a job must be in one place only.
local delayed, stream, events, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- with parts/put
-- with parts/member
-- with parts/tell
redis.call('XLEN', stream)  -- fails before anything is written if it is not what it should be
local indexed, member = redis.call('GET', index), ARGV[1]
if member == '' then member = indexed end
local name, envelope
if member then name, envelope = split(member) end
if not name or not redis.call('ZSCORE', delayed, member) then return 0 end
put(envelope, name, '')
redis.call('ZREM', delayed, member)
if indexed == member then redis.call('DEL', index) end
if ARGV[2] ~= '0' then
    local time = redis.call('TIME')
    local stamp = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
    tell('waiting', id_of(envelope), name, stamp)
    redis.pcall('XTRIM', events, 'MAXLEN', '~', ARGV[2])
end
return 1
