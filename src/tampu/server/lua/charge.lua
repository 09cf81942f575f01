#!lua flags=allow-oom
-- charge: take tokens of rates for jobs that have passed already, or give some back.
-- KEYS  1 stream   2 gate (hash)
-- ARGV  1.. in turns  resource, how many tokens (below 0: given back)
-- reply how many of them have a rate
-- Atomic because jobs that pass meanwhile take tokens too.
local stream, count = KEYS[1], 0
-- with parts/add_entry
-- with parts/member
-- with parts/gate
local gate = open_gate(KEYS[2])
if not gate then return 0 end
for i = 1, #ARGV, 2 do
    if gate.charge(ARGV[i], tonumber(ARGV[i + 1])) then count = count + 1 end
end
gate.pass()
return count
