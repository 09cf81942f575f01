-- deliver_members: add jobs of flows of other queues, each once.
-- KEYS  1 stream
-- ARGV  1 s to remember them   2.. for each job  its id, the job
-- reply how many were added
-- Atomic because the relay may bring each of them more than once.
local stream = KEYS[1]
local tag = string.sub(stream, 1, -8)
-- with parts/add_entry
-- with parts/member
-- with parts/gate
-- with parts/outbox
-- with parts/add_members
local new = {}
for i = 2, #ARGV, 2 do
    if redis.call('SET', tag .. ':tampu:delivered:' .. ARGV[i], '1', 'NX', 'EX', ARGV[1]) then
        new[#new + 1] = ARGV[i + 1]
    end
end
add_members('', new)
pass_gate({})
return #new
