-- Flows: graphs of jobs. The state of a flow is in one hash of its home queue, and for each node with
-- many jobs (a map) in `<hash>:<node>`, two bits a job, and `<hash>:<node>:out`, their results.
-- end_jobs(ends): note how jobs of flows of this queue have ended. Each of `ends` is a table:
--     flow, node, number ('' if the node has one job), generation (how often it was replayed),
--     kind: 's' done | 'd' dead | 'c' cancelled | 'p' parked, with its member | 'a' replayed
--     value: result or failure, or the member; place: where its dead letter is ('': there is none)
-- note_changes(flow), announce_flows(): write all down, at the end. Others as below.
-- `f` and `d` of a node: when its first jobs were added, and when the last of them ended.
-- Stages of a node: '' it waits, '1' it grows, '2' all of its jobs are known, '3' its growth is halted.
-- After `add_members`, `flow_keys` and `announce`; with `notices`, and `tag`.
local HELD_S = 1209600  -- how long a flow that has failed is kept: 14 days
local PENDING, DONE, DEAD, AGAIN = 0, 1, 2, 3
local NODE_FIELDS = { 'k', 'u', 'e', 'x', 'p', 't', 'c', 'i', 'o', 'm', 'z', 'q', 'j' }
local INCOMPLETE = cmsgpack.pack({ 'failed', '', 'some of its jobs could not run', '' })
local flows, told = {}, {}  -- the flows of this call, by id; those whose end is announced

local function open_flow(id)
    local flow = flows[id]
    if flow == nil then
        local key = tag .. ':tampu:flow:' .. id
        local found = redis.call('HMGET', key, 's', 'live', 'held', 'bad', 'fast', 'res', 'again', 'ttl', 'halt')
        flow = found[1] and {
            id = id, key = key, state = found[1], live = tonumber(found[2]), held = tonumber(found[3]),
            bad = tonumber(found[4]), fast = found[5] == '1', result = found[6],
            again = tonumber(found[7] or 0), ttl = found[8],
            -- While it resumes, it is still halted, but it does not end.
            halted = found[9] == '1' or found[9] == '2', resumes = found[9] == '2',
            nodes = {}, ready = {},
        }
        flows[id] = flow or false
    end
    return flow or nil
end

local function load_node(flow, name)
    local node = flow.nodes[name]
    if node then return node end
    local fields = {}
    for i, letter in ipairs(NODE_FIELDS) do fields[i] = letter .. name end
    local found = redis.call('HMGET', flow.key, unpack(fields))
    if not found[1] then return nil end
    node = {
        name = name, is_map = found[1] == 'm', left = tonumber(found[2]), pending = tonumber(found[3]),
        dead = tonumber(found[4] or 0), added = tonumber(found[5] or 0), tolerated = tonumber(found[6] or 0),
        fired = found[7] or '', is_bad = found[8] == '1', edges = found[9] or '',
        state = tonumber(found[10] or 0), stage = found[11] or '', queue = found[12] or '',
        is_batch = found[13] == 'b',
    }
    flow.nodes[name] = node
    return node
end

-- --- who waits for it -----------------------------------------------------------------------------

local function tell_end(flow, kind, value, ttl)
    redis.pcall('SET', tag .. ':' .. kind .. ':' .. flow.id, value, 'EX', ttl)
    told[#told + 1] = flow.id
end
-- `note_changes` shortens its time when the flow has ended.
local function tell_result(flow, value) tell_end(flow, 'result', value, HELD_S) end
local function tell_failure(flow, value) tell_end(flow, 'tampu:failure', value, HELD_S) end

local clock
local function now_ms()
    if not clock then
        local time = redis.call('TIME')
        clock = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
    end
    return clock
end

-- --- what follows from a change -------------------------------------------------------------------

-- The nodes that waited for one end of a node ('s' its success, 'e' any end) wait for one thing less.
local function fire(flow, node, kinds)
    for name, kind in string.gmatch(node.edges, '(%d+)(%a)') do
        if string.find(kinds, kind, 1, true) and redis.call('HINCRBY', flow.key, 'w' .. name, -1) == 0 then
            flow.ready[#flow.ready + 1] = name
        end
    end
end

-- Call it after each change of a node's counts.
local function note_node(flow, node)
    local is_whole = not node.is_map or node.stage == '2'  -- all of its jobs are known
    local allowed = math.floor(node.tolerated * node.added + 1e-9)
    if is_whole and node.left == node.dead and node.dead <= allowed and not string.find(node.fired, 's') then
        node.fired = node.fired .. 's'
        fire(flow, node, 's')
        if flow.result == node.name then
            -- Of a map, `FlowRun` reads the results one by one.
            tell_result(flow, not node.is_map and redis.call('HGET', flow.key, 'y' .. node.name) or '\192')
        end
    end
    if is_whole and node.left == node.dead then node.ended = now_ms() end
    if is_whole and node.pending == 0 and not string.find(node.fired, 'e') then
        node.fired = node.fired .. 'e'
        fire(flow, node, 'ea')
    end
    local is_bad = (is_whole or node.tolerated == 0) and node.dead > allowed
        and (flow.result == node.name or not string.find(node.edges, 'e', 1, true))
    if is_bad ~= node.is_bad then
        node.is_bad = is_bad
        flow.bad = flow.bad + (is_bad and 1 or -1)
    end
    node.is_changed = true
end

local function release(flow, name)
    local node = load_node(flow, name)
    node.is_changed, node.began = true, now_ms()
    flow.held, flow.live = flow.held - 1, flow.live + 1
    if node.is_map then
        node.stage = '1'  -- and one of `live` stands for the jobs to come
        if not node.is_batch then send_message('op', 'grow', 'flow', flow.id, 'node', name) end
    else
        node.stage = '2'
        add_members(node.queue, { redis.call('HGET', flow.key, 'b' .. name) })
    end
end

local function add_to_map(flow, node, count)
    node.added, node.left, node.pending = node.added + count, node.left + count, node.pending + count
    flow.live = flow.live + count
    node.is_changed = true
end
local function close_map(flow, node)
    node.stage = '2'
    flow.live = flow.live - 1
    note_node(flow, node)
end

-- The flow is kept for so long from now on; nil: until it ends.
local function keep(flow, ttl)
    each_key(flow.key, redis.call('HGET', flow.key, 'maps') or '', function(key)
        if ttl then redis.call('EXPIRE', key, ttl) else redis.call('PERSIST', key) end
    end)
end
-- Ask the workers of all queues of a flow: 'cancel' its jobs, or 'park' those that have not started.
local function ask_workers(flow, op)
    for name in string.gmatch(redis.call('HGET', flow.key, 'queues') or '', '[^\n]+') do
        send_message('op', 'ask', 'to', name, 'what', op, 'flow', flow.id)
    end
end

local function halt(flow)
    flow.halted = true
    ask_workers(flow, 'park')
end

local function ask_to_resume(flow)
    if not flow.resumes then send_message('op', 'resume', 'flow', flow.id) end
    flow.resumes = true
end

-- Write down what has changed, release what is ready, and end the flow if nothing of it is left.
local function note_changes(flow)
    if flow.bad > 0 and flow.state == 'running' and not flow.was_told then
        if redis.call('EXISTS', tag .. ':tampu:failure:' .. flow.id) == 0 then
            tell_failure(flow, redis.call('HGET', flow.key, 'why') or INCOMPLETE)
        end
        flow.was_told = true
        if flow.fast and not flow.halted then halt(flow) end
    end
    -- What is ready later than the flow was stopped is released when it goes on.
    if flow.state == 'running' and not flow.halted then
        for _, name in ipairs(flow.ready) do release(flow, name) end
        flow.ready = {}
    end
    local halted = not flow.halted and '0' or flow.resumes and '2' or '1'
    local fields = { 'live', flow.live, 'held', flow.held, 'bad', flow.bad, 'halt', halted }
    local function set(name, value)
        fields[#fields + 1] = name
        fields[#fields + 1] = value
    end
    for name, node in pairs(flow.nodes) do
        if node.is_changed then
            set('u' .. name, node.left); set('e' .. name, node.pending); set('x' .. name, node.dead)
            set('p' .. name, node.added); set('c' .. name, node.fired); set('z' .. name, node.stage)
            set('i' .. name, node.is_bad and '1' or '0'); set('m' .. name, node.state)
            if node.began then set('f' .. name, node.began) end
            if node.ended then set('d' .. name, node.ended) end
            node.is_changed = false
        end
    end
    local ttl
    if flow.live == 0 and not flow.resumes then
        set('end', now_ms())
        if flow.state == 'running' then
            flow.state = flow.held == 0 and flow.bad == 0 and 'done' or 'failed'
            if flow.state == 'done' and not flow.result then tell_result(flow, '\192') end
            if flow.state == 'failed' and flow.bad == 0 then tell_failure(flow, INCOMPLETE) end
        end
        ttl = flow.state == 'failed' and HELD_S or flow.ttl
    end
    set('s', flow.state)
    for i = 1, #fields, 4000 do
        redis.call('HSET', flow.key, unpack(fields, i, math.min(i + 3999, #fields)))
    end
    if ttl then
        keep(flow, ttl)
        redis.call('EXPIRE', tag .. ':result:' .. flow.id, ttl)
    end
end

-- --- how jobs end -----------------------------------------------------------------------------------

local function place_of(each) return each.number == '' and each.node or each.node .. '.' .. each.number end

-- Without the ends of earlier runs of jobs that were replayed since: the relay may bring them again.
local function drop_old(flow, list)
    local names, kept = {}, {}
    for i, each in ipairs(list) do names[i] = 'g' .. place_of(each) end
    local known = redis.call('HMGET', flow.key, unpack(names))
    for i, each in ipairs(list) do
        local newest = tonumber(known[i] or 0)
        if each.generation >= newest and (each.kind ~= 'a' or each.generation > newest) then
            kept[#kept + 1] = each
        end
    end
    return kept
end

local function swap_states(flow, node, list, new_state)
    if not node.is_map then
        local old = {}
        for i, each in ipairs(list) do
            old[i] = node.state
            if node.state ~= DONE and node.state ~= DEAD then node.state = new_state(each) end
        end
        return old
    end
    local bits, key = {}, flow.key .. ':' .. node.name
    for _, each in ipairs(list) do
        local n = #bits
        bits[n + 1], bits[n + 2], bits[n + 3], bits[n + 4] = 'SET', 'u2', '#' .. each.number, new_state(each)
    end
    local old = redis.call('BITFIELD', key, unpack(bits))
    for i, each in ipairs(list) do
        if old[i] == DONE or old[i] == DEAD then
            redis.call('BITFIELD', key, 'SET', 'u2', '#' .. each.number, old[i])
        end
    end
    return old
end

local function end_some(flow, node, list)
    local old = swap_states(flow, node, list, function(each) return each.kind == 's' and DONE or DEAD end)
    local results, failure, bad = {}, nil, flow.bad
    for i, each in ipairs(list) do
        if old[i] == PENDING or old[i] == AGAIN then
            local value, is_done = each.value, each.kind == 's'
            if old[i] == PENDING then node.pending = node.pending - 1 end
            flow.live = flow.live - 1
            if is_done then
                node.left = node.left - 1
                if flow.again > 0 then redis.call('HDEL', flow.key .. ':dead', place_of(each)) end
            else
                node.dead = node.dead + 1
                failure = failure or value
                if each.place ~= '' then redis.call('HSET', flow.key .. ':dead', place_of(each), each.place) end
                value = '\193' .. value
            end
            results[#results + 1] = each.number
            results[#results + 1] = value
        end
    end
    if #results == 0 then return end
    if node.is_map then redis.call('XADD', flow.key .. ':' .. node.name .. ':out', '*', unpack(results))
    else redis.call('HSET', flow.key, 'y' .. node.name, results[2]) end
    note_node(flow, node)
    if failure then
        -- The first one that nobody takes care of says why the flow has failed.
        redis.call(bad == 0 and flow.bad > 0 and 'HSET' or 'HSETNX', flow.key, 'why', failure)
    end
end

-- Adds a job that was parked: `text` is its generation from now on, and the job.
local function unpark(flow, node, place, text)
    local generation, member = string.match(text, '^(%d+) (.*)$')
    flow.again = flow.again + 1
    redis.call('HSET', flow.key, 'g' .. place, generation, 'again', flow.again)
    add_members(node.queue, { member })
end
local function state_of(flow, node, number)
    if not node.is_map then return node.state end
    return redis.call('BITFIELD', flow.key .. ':' .. node.name, 'GET', 'u2', '#' .. number)[1]
end
-- A job was taken out before it started. It is kept for `resume_flow`, unless that has been there.
local function park(flow, node, each)
    local state = state_of(flow, node, each.number)
    if state == DONE or state == DEAD then return end  -- a copy of it has ended
    if not flow.halted and flow.state == 'running' then
        unpark(flow, node, place_of(each), each.value)
    elseif redis.call('HSETNX', flow.key .. ':parked', place_of(each), each.value) == 1 then
        flow.live = flow.live - 1
    end
end

local function run_again(flow, node, each)
    if state_of(flow, node, each.number) ~= DEAD then return end
    if node.is_map then redis.call('BITFIELD', flow.key .. ':' .. node.name, 'SET', 'u2', '#' .. each.number, AGAIN)
    else node.state = AGAIN end
    flow.again = flow.again + 1
    redis.call('HSET', flow.key, 'g' .. place_of(each), each.generation, 'again', flow.again)
    redis.call('HDEL', flow.key .. ':dead', place_of(each))
    node.dead, flow.live = node.dead - 1, flow.live + 1
    note_node(flow, node)
    if flow.state == 'done' or flow.state == 'failed' then
        flow.state = 'running'
        redis.call('HDEL', flow.key, 'end')
        keep(flow, nil)
    end
    if flow.bad == 0 and flow.state == 'running' then
        redis.call('HDEL', flow.key, 'why')
        redis.call('DEL', tag .. ':tampu:failure:' .. flow.id)
        flow.was_told = false
        if flow.halted then ask_to_resume(flow) end
    end
end

local function end_jobs(ends)
    local groups, order = {}, {}
    for _, each in ipairs(ends) do
        local name = each.flow .. '~' .. each.node
        local group = groups[name]
        if not group then
            group = {}
            groups[name] = group
            order[#order + 1] = group
        end
        group[#group + 1] = each
    end
    local changed = {}
    for _, group in ipairs(order) do
        local flow = open_flow(group[1].flow)
        if flow then changed[flow] = true end
        local node = flow and load_node(flow, group[1].node)
        if node then
            if flow.again > 0 or group[1].kind == 'a' then group = drop_old(flow, group) end
            local ended = {}
            for _, each in ipairs(group) do
                if each.kind == 'p' then park(flow, node, each)
                elseif each.kind == 'a' then run_again(flow, node, each)
                else ended[#ended + 1] = each end
            end
            if #ended > 0 then end_some(flow, node, ended) end
        end
    end
    for flow in pairs(changed) do note_changes(flow) end
end

-- Tell those who wait for the flows that have ended. Call it last.
local function announce_flows()
    if #told > 0 then announce(cmsgpack.pack(told), 3600) end
end
-- parse_member(id): the parts of the id of a flow's job as a table, and the home of its flow ('': here).
-- note_end(ends, id, kind, value, letter): one more of `ends` for `end_jobs`, or a message to the home of
-- the flow, if that is another queue. `letter`: the id of its dead letter ('': none).
local function parse_member(id)
    local flow, node, rest = string.match(id, '^(%w+)~(%d+)(.*)$')
    local number, again, home = string.match(rest or '', '^%.?(%d*)!?(%d*)@?(.*)$')
    if number ~= '' then number = tostring(tonumber(number)) end  -- of a batch it has nine digits
    return { flow = flow, node = node, number = number, generation = tonumber(again) or 0 }, home
end
local function note_end(ends, id, kind, value, letter)
    local each, home = parse_member(id)
    if home ~= '' then
        send_message('op', 'end', 'to', home, 'id', id, 'kind', kind, 'value', value, 'place', letter)
        return
    end
    each.kind, each.value, each.place = kind, value, letter ~= '' and letter .. ' ' or ''
    ends[#ends + 1] = each
end
