-- prepare_gate: make known what the gate needs for jobs that flows will add.
-- KEYS  1 stream   2 gate (hash)   3 control (stream)
-- ARGV  1 flags of the jobs   2 ms to keep the control stream   3 how many limits follow
--       4.. for each limit  name, definition ('': declared elsewhere)
--       then for each weight  a line of its key, the weight
-- reply 1, or an error NOLIMIT, and nothing was written
-- Atomic because limits are either all known or none is declared.
local stream, gate_key, control = unpack(KEYS, 1, 3)
-- with parts/gate_create
local count = tonumber(ARGV[3])
local unknown = undeclared(gate_key, 4, count)
if unknown then return unknown end
create_gate(gate_key, ARGV[2])
local wanted = ARGV[1] .. declare(gate_key, 4, count)
if wanted ~= '' then add_flags(gate_key, wanted) end
for i = 4 + 2 * count, #ARGV, 2 do set_weight(gate_key, ARGV[i], ARGV[i + 1], WEIGHT_DAYS) end
return 1
