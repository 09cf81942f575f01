#!lua flags=allow-oom
-- acquire_lease: take one occurrence on a resource, or the whole resource.
-- KEYS  1 held (hash)   2 done (sorted set)
-- ARGV  1 field: the occurrence, or '*' for the whole resource   2 token   3 ms that the lease lasts
--       4 the occurrence as a member of done
-- reply 1 it is ours | 0 somebody else holds it | 2 it has been done
-- Atomic because nobody may take it between the look and the taking.
local held, done = KEYS[1], KEYS[2]
local field, token, lease, member = unpack(ARGV, 1, 4)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- with parts/held
local score = redis.call('ZSCORE', done, member)
local fields = redis.call('HGETALL', held)
local taken = false
for i = 1, #fields, 2 do
    local name = fields[i]
    local holder, expiry = holder_of(fields[i + 1])
    if name == '=' then
        -- Who let go last, for let_go.
    elseif not expiry or expiry <= now then
        redis.call('HDEL', held, name)
    elseif name == field and holder == token then
        return 1  -- sent again
    elseif name == field or name == '*' or field == '*' then
        taken = true
    end
end
if score then return 2 end
if taken then return 0 end
lend()
return 1
