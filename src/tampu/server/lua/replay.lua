-- replay: put dead letters back on the queue.
-- KEYS  1 dead letters (stream)   2 stream   3 gate (hash)   4.. the stored failure of each job
-- ARGV  1.. for each dead letter  its id, envelope, name, extras
-- reply one flag per dead letter: '1' replayed, '0' it no longer existed
-- Atomic because each letter must be replayed once, however many processes replay.
local dead, stream, flags = KEYS[1], KEYS[2], {}
local tag = string.sub(stream, 1, -8)
-- with parts/add_entry
-- with parts/member
-- with parts/gate
redis.call('XLEN', stream)  -- fails on a key of a wrong type, before anything is written
local gate = open_gate(KEYS[3])
for i = 1, #ARGV, 4 do
    local id, body, name, extras = unpack(ARGV, i, i + 3)
    local flag = '0'
    if redis.call('XDEL', dead, id) == 1 then
        flag = '1'
        if gate then
            -- A job whose key runs in order comes first: others of its key may wait for it.
            local line, member = gate.line_of(extras), join_member(name, body, extras)
            if string.find(line, '|>:', 1, true) then gate.put_back(line, member)
            else gate.enter(line, { member }) end
        else
            add_entry(body, name, extras)
        end
        local failure = KEYS[3 + (i + 3) / 4]
        redis.call('DEL', failure, tag .. ':tampu:out:' .. string.sub(failure, #tag + 16))
    end
    flags[#flags + 1] = flag
end
if gate then gate.pass() end
return table.concat(flags)
