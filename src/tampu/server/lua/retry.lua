#!lua flags=allow-oom
-- retry: settle entries whose jobs run again, now or after a wait.
-- KEYS  1 stream   2 delayed (sorted set)   3 wakeup (list)   4 gate (hash)
--       5 control (stream)
--       6.. for each job whose id a user chose  its index, the marker of its id
-- ARGV  1 group   2 consumer that must hold the entries ('': any)   3 '1' if the server has XACKDEL
--       4 ms to keep the control stream
--       5.. for each entry  its id, ms to wait ('': run now),
--           envelope (to wait: delayed member), name, extras,
--           s to keep its index ('': our own id, so that it has none),
--           what the gate closes for as long as this job waits, in a line ('': nothing),
--           '1' if it passed the gate and did not start: it gives back what it took from rates
-- reply one flag per entry: '1' settled, '0' not pending or no longer ours
-- A job with `keep` is dropped instead if a newer one has come into its line.
-- Atomic because a job must be either in the old place or in the new one, whoever dies in between.
local stream, delayed, wakeup, rules = KEYS[1], KEYS[2], KEYS[3], nil
local tag = string.sub(stream, 1, -8)
local group, consumer, has_ackdel, control, kept = ARGV[1], ARGV[2], ARGV[3], KEYS[5], ARGV[4]
-- with parts/settle
-- with parts/add_entry
-- with parts/wakeup
-- with parts/member
-- with parts/gate
-- with parts/line_rules
-- with parts/hold
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local before, earliest = first_due(), nil  -- fails on a wrong type, before anything is written
local ids, settled, back = {}, {}, {}
local function is_newer(a, b)
    local ms, number = string.match(a, '^(%d+)%-(%d+)$')
    local other, other_number = string.match(b, '^(%d+)%-(%d+)$')
    if ms ~= other then return tonumber(ms) > tonumber(other) end
    return tonumber(number) > tonumber(other_number)
end
for i = 5, #ARGV, 8 do ids[#ids + 1] = ARGV[i] end
local flags, key, gate = settle(ids), 5, open_gate(KEYS[4])
-- Whether a newer job has come into the line of one with `keep`, which then does not run again.
local function is_replaced(line, name, body, extras)
    local rule = has_rule(extras) and rule_of(extras)
    if rule ~= 'last' and rule ~= 'again' then return false, false end
    rules = rules or open_rules(KEYS[4], gate)
    local member = join_member(name, body, extras)
    if not rules.is_replaced(line, member) then return false, true end
    rules.drop(member)
    return true, true
end
for i, flag in ipairs(flags) do
    local id, wait, body, name, extras, index, closes, refunds = unpack(ARGV, 8 * i - 3, 8 * i + 4)
    if index ~= '' then key = key + 2 end
    if flag == '1' then
        settled[#settled + 1] = id
        local entry, member, line, replaced, keeps = nil, body, nil, false, false
        if gate then
            if wait ~= '' then name, body, extras = split_job(body) end
            line = gate.line_of(extras)
            for resource in string.gmatch(closes, '[^|]+') do
                -- Of ordered jobs only one runs: no worker has read the next one.
                local is_new, is_ordered = gate.close(resource, now + wait), string.sub(resource, 1, 1) == '>'
                if is_new and not is_ordered then
                    hold('|' .. resource, wait, string.format('%.0f', now + wait))
                end
            end
            if refunds == '1' then gate.refund(extras, id) end
            replaced, keeps = is_replaced(line, name, body, extras)
        end
        if replaced then  -- it runs no more
        elseif gate and (wait == '' or closes ~= '') then
            back[#back + 1] = { id, line, join_member(name, body, extras) }
            entry = '1'
        elseif wait == '' then
            entry = add_entry(body, name, extras)
        else
            local at = now + wait
            if keeps then member = rules.run_later(line, name, body, extras, wait) end
            redis.call('ZADD', delayed, string.format('%.0f', at), member)
            if index ~= '' then redis.pcall('SET', KEYS[key - 1], member, 'EX', index) end
            if not earliest or at < earliest then earliest = at end
        end
        if entry and index ~= '' then redis.pcall('SET', KEYS[key], entry, 'XX', 'KEEPTTL') end
    end
end
wake(before, earliest)
if gate then
    -- The newest first: each goes to the head of its line.
    table.sort(back, function(a, b) return is_newer(a[1], b[1]) end)
    for _, each in ipairs(back) do gate.put_back(each[2], each[3]) end
    gate.let_go(settled)
    gate.pass()
    if rules then rules.finish() end
end
return table.concat(flags)
