#!lua flags=allow-oom
-- settle_members: settle entries of jobs of flows: acknowledge, delete, note how they ended, and add
-- the jobs that have waited for them; what belongs to a flow of another queue goes to the outbox.
-- KEYS  1 stream   2 dead letters (stream)   3 notices (stream)   4 gate (hash)
-- ARGV  1 group   2 consumer that must hold the entries ('': any)   3 '1' if the server has XACKDEL
--       4 most dead letters (0: any)
--       5.. for each entry  its id, the id of its job, how it ended: 's' done | 'd' dead |
--           'c' cancelled | 'p' it was taken out and waits until the flow goes on,
--           its result or failure (of 'p': its generation and the job),
--           what the gate closes until somebody opens it ('': nothing),
--           its run, if it may have a stream ('': no),
--           how many texts follow, the fields and values of the dead letter
-- reply one flag per entry: '1' settled, '0' not pending or no longer ours
-- Atomic because a job is counted once, however often it runs, and what waits for it starts once.
local stream, dead, notices = KEYS[1], KEYS[2], KEYS[3]
local group, consumer, has_ackdel = ARGV[1], ARGV[2], ARGV[3]
local tag = string.sub(stream, 1, -8)
local OUTPUT_S = 3600  -- how long the stream of a job is kept after its end
-- with parts/settle
-- with parts/end_output
-- with parts/add_entry
-- with parts/member
-- with parts/gate
-- with parts/announce
-- with parts/outbox
-- with parts/add_members
-- with parts/flow_keys
-- with parts/flow
local ids, starts, i = {}, {}, 5
while i <= #ARGV do
    ids[#ids + 1] = ARGV[i]
    starts[#starts + 1] = i
    i = i + 7 + ARGV[i + 6]
end
redis.call('XLEN', dead)  -- fails on a key of a wrong type, before anything is written
local flags, settled, ends, is_buried = settle(ids), {}, {}, false
for n, flag in ipairs(flags) do
    if flag == '1' then
        local start = starts[n]
        local entry, id, kind, value, closes, run, texts = unpack(ARGV, start, start + 6)
        settled[#settled + 1] = entry
        local letter = ''
        if texts ~= '0' then
            letter = redis.call('XADD', dead, '*', unpack(ARGV, start + 7, start + 6 + texts))
            is_buried = true
        end
        if closes ~= '' then
            local gate = open_gate(KEYS[4])
            if gate then
                gate.close(closes, FOREVER)
                gate.pass()
            end
        end
        if kind == 'd' or kind == 'c' then end_output(id, value, OUTPUT_S)
        elseif kind == 's' and run ~= '' then end_output(id, '', OUTPUT_S, run) end
        note_end(ends, id, kind, value, letter)
    end
end
if is_buried and ARGV[4] ~= '0' then redis.call('XTRIM', dead, 'MAXLEN', '~', ARGV[4]) end
end_jobs(ends)
pass_gate(settled)
announce_flows()
wake_relay()
return table.concat(flags)
