#!lua flags=allow-oom
-- reap: remove a consumer that is gone and holds nothing.
-- KEYS  1 stream   2 the mark of its worker
-- ARGV  1 group   2 consumer   3 the mark, from the worker itself ('': somebody else asks)
-- reply 1 removed | 0 it lives, or holds entries, or was not there
-- Atomic because removing a consumer drops whatever it holds.
local stream, mark = KEYS[1], KEYS[2]
local said = redis.call('GET', mark)
if said and said ~= ARGV[3] then return 0 end
if said then redis.call('DEL', mark) end
local held = redis.pcall('XPENDING', stream, ARGV[1], '-', '+', 1, ARGV[2])
if held.err or #held > 0 then return 0 end
redis.call('XGROUP', 'DELCONSUMER', stream, ARGV[1], ARGV[2])
return 1
