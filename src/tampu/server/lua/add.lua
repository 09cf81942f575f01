-- add: add jobs to a queue; a repeated call adds nothing.
-- KEYS  1 stream   2 delayed (sorted set)   3 the replies to this producer's last calls (hash)
--       4 gate (hash)
--       of 'full' and 'lined' also  5 wakeup (list)   6 control (stream)   7 notices (stream)
--           8.. for each job that has them, in this order: the marker of its id, its delayed index,
--           its unique key, and with a marker the result and failure of an earlier job
-- ARGV  1 number of the call   2 ms to remember the producer   3 longest stream (0: any)
--       4 'plain': then for each job  envelope, name
--         'full':  then for each job  envelope (delayed: member), name, extras,
--                  due ('': now | ms | +ms from now), marker s ('': no id), index s ('': none),
--                  unique: ms and the id of the job that takes the key ('': no key)
--         'lined': the flags of these jobs, ms to keep the control stream, how many limits follow;
--                  for each limit  name, definition ('': declared elsewhere)
--                  then for each job  as in 'full', but the body is always a member, and its name
--                  and extras are empty;  line ('': none), weight ('': 1), rule ('': none):
--                  most <n> <mode>: with so many in its line, <mode> is raise, wait, drop_new, drop_old
--                  last: it replaces all that wait in its line
--                  quiet <ms> <longest ms> <name>: it replaces the delayed job of the same name, and
--                  is due after that time without another one
-- reply '' all were added | one flag per job: '1' added, '0' its id or its unique key was taken,
--           '2' dropped because its line is full;
--       or an error QUEUEFULL or NOLIMIT, and nothing was added
-- Atomic because a call that is sent again after a lost reply must add nothing twice, and because
-- taking an id and adding its job must be one step.
-- It has no #!lua line: with one, a server at its memory limit would refuse a repeated call before the
-- script could find out that it was carried out already.
local stream, delayed, memory, gate_key, wakeup, control, notices = unpack(KEYS, 1, 7)
-- with parts/add_entry
local number, limit, shape = ARGV[1], tonumber(ARGV[3]), ARGV[4]
local width, first = 2, 5
if shape == 'full' then width = 7 end
if shape == 'lined' then width, first = 10, 8 + 2 * ARGV[7] end

-- These three reads also fail on keys of a wrong type, before anything is written.
-- A producer has at most 16 calls in flight, so a repeated call is among the last 16.
local slot = tonumber(number) % 16
local remembered = redis.call('HGET', memory, slot)
if remembered then
    local before, reply = string.match(remembered, '^(%d+) (.*)$')
    if before == number then
        -- A small write: WAIT and WAITAOF then wait for all writes before it, the jobs included.
        redis.call('PEXPIRE', memory, ARGV[2])
        return reply
    end
    if tonumber(before) > tonumber(number) then
        return redis.error_reply('FORGOTTEN later calls of this producer have been carried out since')
    end
end
local waiting = redis.call('XLEN', stream)
redis.call('ZCARD', delayed)
local in_lines = redis.call('HGET', gate_key, 'waiting')  -- false without a gate
waiting = waiting + (in_lines or 0)
local function is_full(more) return limit > 0 and more > 0 and waiting + more > limit end
local function remember(answer)
    redis.call('HSET', memory, slot, number .. ' ' .. answer)
    redis.call('PEXPIRE', memory, ARGV[2])
    return answer
end

-- Everything is checked before anything is written: a script that fails halfway is not rolled back.
local more = (#ARGV - first + 1) / width
if more ~= math.floor(more) then return redis.error_reply('ERR the last job of the call is incomplete') end
if shape == 'plain' and not in_lines then
    if is_full(more) then return redis.error_reply('QUEUEFULL the queue has reached its max_len') end
    for i = 5, #ARGV, 2 do add_entry(ARGV[i], ARGV[i + 1], '') end
    return remember('')
end

-- All that follows is for jobs with options and for queues with a gate: to make its functions takes
-- as long as to add a few plain jobs.
local tag = string.sub(stream, 1, -8)
-- with parts/wakeup
-- with parts/member
-- with parts/gate
-- with parts/gate_create
local is_timed = false  -- whether some are delayed
if shape ~= 'plain' then
    for i = first, #ARGV, width do
        local due, marker, index, unique = unpack(ARGV, i + 3, i + 6)
        if due ~= '' then
            more = more - 1
            is_timed = true
        end
        if not (due == '' or string.find(due, '^%+?%d+$') and #due <= 16)
            or not (marker == '' or string.find(marker, '^[1-9]%d*$') and #marker <= 10)
            or not (index == '' or string.find(index, '^[1-9]%d*$') and #index <= 10)
            or not (unique == '' or string.find(unique, '^[1-9]%d* .') ) then
            return redis.error_reply('ERR a job of the call has an invalid time')
        end
    end
end
local unknown = shape == 'lined' and undeclared(gate_key, 8, tonumber(ARGV[7]))
if unknown then return unknown end
if is_full(more) then
    return redis.error_reply('QUEUEFULL the queue has reached its max_len')
end

-- Jobs that wait in lines, and the lines in the order in which they came up.
local lines, order = {}, {}
local function wait_in(line, member)
    local list = lines[line]
    if not list then
        list = {}
        lines[line] = list
        order[#order + 1] = line
    end
    list[#list + 1] = member
end
local weights = {}

-- What the rules of jobs say about others that wait, if some have rules.
local rules
if shape == 'lined' then
    for i = first + 9, #ARGV, width do
        if ARGV[i] ~= '' then rules = {} end
    end
end
if rules then
    -- with parts/line_rules
    rules = open_rules(gate_key, nil, function(line) return lines[line] end)
    -- Before anything is written: `QUEUEFULL` refuses all.
    local coming = {}
    for i = first, #ARGV, width do
        local kind, most, mode = rules.read(ARGV[i + 9])
        if kind == 'quiet' then is_timed = true end
        if kind == 'most' and ARGV[i + 3] == '' then
            local line = ARGV[i + 7]
            local rest = string.sub(line, 2)
            coming[rest] = (coming[rest] or rules.count_waiting(line)) + 1
            if (mode == 'raise' or mode == 'wait') and coming[rest] > tonumber(most) then
                return redis.error_reply('QUEUEFULL its line has reached its max_waiting')
            end
        end
    end
end

local answer = ''
local has_gate = shape == 'lined' or in_lines
if shape == 'plain' then
    for i = 5, #ARGV, 2 do
        wait_in(PLAIN, join_member(ARGV[i + 1], ARGV[i], ''))
    end
else
    local key, flags, taken = 7, {}, false
    local now, before, earliest
    if is_timed then
        local time = redis.call('TIME')
        now, before = time[1] * 1000 + math.floor(time[2] / 1000), first_due()
    end
    for i = first, #ARGV, width do
        local body, name, extras, due, marker, index, unique = unpack(ARGV, i, i + 6)
        local line, weight, rule = '', '', ''
        if shape == 'lined' then line, weight, rule = unpack(ARGV, i + 7, i + 9) end
        local kind, a, b, c
        if rule ~= '' then kind, a, b, c = rules.read(rule) end
        local marker_key, index_key, unique_key
        if marker ~= '' then key = key + 1; marker_key = KEYS[key] end
        if index ~= '' then key = key + 1; index_key = KEYS[key] end
        if unique ~= '' then key = key + 1; unique_key = KEYS[key] end
        if marker_key then key = key + 2 end
        local free = (not marker_key or redis.call('EXISTS', marker_key) == 0)
            and (not unique_key or redis.call('EXISTS', unique_key) == 0)
        if not free then
            flags[#flags + 1] = '0'
            taken = true
        elseif due == '' and (kind == 'most' or kind == 'last') and not rules.make_room(line, body, kind, a, b) then
            flags[#flags + 1] = '2'
            taken = true
            rules.drop(body)
        else
            flags[#flags + 1] = '1'
            local place = '1'
            if kind == 'quiet' then
                local at = rules.replace_delayed(body, now, a, b, c)
                redis.call('ZADD', delayed, string.format('%.0f', at), body)
                if not earliest or at < earliest then earliest = at end
            elseif due == '' and has_gate then
                local member = shape == 'lined' and body or join_member(name, body, extras)
                wait_in(line ~= '' and line or PLAIN, member)
            elseif due == '' then
                place = add_entry(body, name, extras)
            else
                local at = tonumber(due)
                if string.sub(due, 1, 1) == '+' then at = now + at end
                redis.call('ZADD', delayed, string.format('%.0f', at), body)
                if index_key then redis.call('SET', index_key, body, 'EX', index) end
                if not earliest or at < earliest then earliest = at end
            end
            if weight ~= '' then weights[#weights + 1] = i end
            if marker_key then
                -- The marker tells where the job is; peers only ask whether it exists.
                redis.call('SET', marker_key, place, 'EX', marker)
                -- Callers who wait for the new job must not get what an earlier one has left. Not
                -- before the job is added: after a DEL, a server at its memory limit refuses nothing.
                local output = tag .. ':tampu:out:' .. string.sub(KEYS[key], #tag + 16)
                redis.call('DEL', KEYS[key - 1], KEYS[key], output)
            end
            if unique_key then
                local ms, holder = string.match(unique, '^(%d+) (.*)$')
                redis.call('SET', unique_key, holder, 'PX', ms)
            end
        end
    end
    wake(before, earliest)
    if taken then answer = table.concat(flags) end
end

if has_gate then
    if shape == 'lined' then
        if not in_lines then create_gate(gate_key, ARGV[6]) end
        local wanted = ARGV[5] .. declare(gate_key, 8, tonumber(ARGV[7]))
        if wanted ~= '' then add_flags(gate_key, wanted) end
        for _, i in ipairs(weights) do set_weight(gate_key, ARGV[i + 7], ARGV[i + 8], WEIGHT_DAYS) end
    end
    if rules then rules.finish() end
    local gate = open_gate(gate_key)
    for _, line in ipairs(order) do
        if lines[line][1] then gate.enter(line, lines[line]) end  -- a rule may have emptied it
    end
    gate.pass()
end

return remember(answer)
