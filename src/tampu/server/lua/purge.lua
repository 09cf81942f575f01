#!lua flags=allow-oom
-- purge: delete jobs that no worker has read yet.
-- KEYS  1 stream
-- ARGV  1 most entries to delete
-- reply the fields and values of each deleted entry
-- Atomic because a worker may read in between, and a job that it runs must not be deleted.
local stream = KEYS[1]
-- with parts/waiting
local last = string.format('%.0f-%.0f', last_ms, last_number)
local ids, found = {}, {}
for _, entry in ipairs(redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', ARGV[1])) do
    ids[#ids + 1] = entry[1]
    found[#found + 1] = entry[2]
end
if #ids > 0 then redis.call('XDEL', stream, unpack(ids)) end
return found
