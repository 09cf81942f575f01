#!lua flags=allow-oom
-- bury: move entries to the dead letters, and free the ids of their jobs.
-- KEYS  1 stream   2 dead letters (stream)   3 notices (stream)   4 gate (hash)
--       5.. for each entry  the key for its failure if it has one, its markers
-- ARGV  1 group   2 consumer that must hold the entries ('': any)   3 '1' if the server has XACKDEL
--       4 most dead letters (0: any)   5 s to keep failures
--       6 notice for callers who wait for results ('': none)
--       7.. for each entry  its id, its failure for waiting callers ('': none), the kinds of its
--           markers, the id of its job, what the gate closes until somebody opens it ('': nothing),
--           how many texts follow, the fields and values of the dead letter
-- reply one flag per entry: '1' settled, '0' not pending or no longer ours
-- Atomic because each entry must become exactly one dead letter, whoever dies or competes.
local stream, dead, notices = KEYS[1], KEYS[2], KEYS[3]
local group, consumer, has_ackdel = ARGV[1], ARGV[2], ARGV[3]
-- with parts/settle
-- with parts/free
-- with parts/announce
-- with parts/end_output
-- with parts/add_entry
-- with parts/member
-- with parts/gate
local DEAD = cmsgpack.pack({ 'dead', '', '', '' })  -- for readers of its stream, if nothing is stored
redis.call('XLEN', dead)  -- fails on a key of a wrong type, before anything is written
local ids, starts, i = {}, {}, 7
while i <= #ARGV do
    ids[#ids + 1] = ARGV[i]
    starts[#starts + 1] = i
    i = i + 6 + ARGV[i + 5]
end
local flags, key, gate, settled = settle(ids), 4, open_gate(KEYS[4]), {}
for n, flag in ipairs(flags) do
    local start = starts[n]
    local _, failure, kinds, holder, closes, texts = unpack(ARGV, start, start + 5)
    if failure ~= '' then key = key + 1 end
    if flag == '1' then
        redis.call('XADD', dead, '*', unpack(ARGV, start + 6, start + 5 + texts))
        settled[#settled + 1] = ids[n]
        if gate and closes ~= '' then gate.close(closes, FOREVER) end
        if failure ~= '' then redis.pcall('SET', KEYS[key], failure, 'EX', ARGV[5]) end
        if holder ~= '' then end_output(holder, failure ~= '' and failure or DEAD, ARGV[5]) end
    end
    key = free(kinds, key, flag == '1' and holder or nil)
end
if ARGV[4] ~= '0' then redis.call('XTRIM', dead, 'MAXLEN', '~', ARGV[4]) end
announce(ARGV[6], ARGV[5])
if gate then
    gate.let_go(settled)
    gate.pass()
end
return table.concat(flags)
