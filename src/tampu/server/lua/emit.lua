-- emit: write events.
-- KEYS  1 events (stream)
-- ARGV  1 most events to keep   2 the events: a MessagePack list of lists of fields and values
-- reply how many were written
-- Atomic because events of one batch are of one story; above all, one call is cheaper than many.
local batch = cmsgpack.unpack(ARGV[2])
for _, event in ipairs(batch) do
    redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', unpack(event))
end
return #batch
