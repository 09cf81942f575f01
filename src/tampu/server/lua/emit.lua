-- emit: write events.
-- KEYS  1 events (stream)
-- ARGV  1 most events to keep   2 the events: a MessagePack list of lists of fields and values
-- reply how many were written
-- Atomic because one call is cheaper than many, and the events of a batch stay together.
local events, batch, call = KEYS[1], cmsgpack.unpack(ARGV[2]), redis.call
for i = 1, #batch do call('XADD', events, '*', unpack(batch[i])) end
call('XTRIM', events, 'MAXLEN', '~', ARGV[1])
return #batch
