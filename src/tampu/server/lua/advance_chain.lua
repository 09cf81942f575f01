#!lua flags=allow-oom
-- advance_chain: settle entries of steps of chains, and add the next step of each.
-- KEYS  1 stream   2 gate (hash)
-- ARGV  1 group   2 consumer that must hold the entries ('': any)   3 '1' if the server has XACKDEL
--       4.. for each entry  its id, its run, if it may have a stream ('': no), the id of its job,
--           the next step's envelope, name and extras
-- reply one flag per entry: '1' settled, '0' not pending or no longer ours
-- Atomic because the next step is added if and only if the entry was still ours to settle.
local stream, group, consumer, has_ackdel = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local tag = string.sub(stream, 1, -8)
local OUTPUT_S = 3600  -- how long the stream of a step is kept after its end
-- with parts/settle
-- with parts/end_output
-- with parts/add_entry
-- with parts/member
-- with parts/gate
local ids, settled = {}, {}
for i = 4, #ARGV, 6 do ids[#ids + 1] = ARGV[i] end
local flags, gate = settle(ids), open_gate(KEYS[2])
for i, flag in ipairs(flags) do
    if flag == '1' then
        local entry, run, id, body, name, extras = unpack(ARGV, 6 * i - 2, 6 * i + 3)
        settled[#settled + 1] = entry
        if run ~= '' then end_output(id, '', OUTPUT_S, run) end
        if gate then gate.enter(gate.line_of(extras), { join_member(name, body, extras) })
        else add_entry(body, name, extras) end
    end
end
if gate then
    gate.let_go(settled)
    gate.pass()
end
return table.concat(flags)
