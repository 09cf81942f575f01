-- emit: write events.
-- KEYS  1 events (stream)
-- ARGV  1 most events to keep   2.. for each event  how many texts follow, its fields and values
-- reply how many were written
-- Atomic because events of one batch are of one story; above all, one call is cheaper than many.
local events, i, written = KEYS[1], 2, 0
while i <= #ARGV do
    local texts = tonumber(ARGV[i])
    redis.call('XADD', events, 'MAXLEN', '~', ARGV[1], '*', unpack(ARGV, i + 1, i + texts))
    i = i + 1 + texts
    written = written + 1
end
return written
