-- send_message(...): write fields and values of a message to the outbox; the relay takes it on.
-- start_relays(): let workers start their relay, as they do when they learn that the queue needs one.
-- wake_relay(): wake the relay if something was written. Call it last.
-- add_members(name, members): add jobs, to this queue if `name` is '', else by the outbox. After
-- `member`, `add_entry` and `gate`. `tag` is what all keys of the queue begin with.
local outbox, has_sent = tag .. ':tampu:outbox', false
local function start_relays()
    redis.call('XADD', tag .. ':tampu:control', 'MAXLEN', '~', 1000, '*', 'op', 'flows')
    redis.call('PEXPIRE', tag .. ':tampu:control', 86400000)
end
local function send_message(...)
    if not has_sent and redis.call('EXISTS', outbox) == 0 then start_relays() end
    has_sent = true
    redis.call('XADD', outbox, '*', ...)
end
local function wake_relay()
    if not has_sent then return end
    redis.pcall('LPUSH', outbox .. ':bell', '1')
    redis.pcall('LTRIM', outbox .. ':bell', 0, 0)
    redis.pcall('PEXPIRE', outbox .. ':bell', 60000)
end
local relay_gate  -- of the queue: false if it has none
local function add_members(name, members)
    if name ~= '' then
        for _, member in ipairs(members) do
            send_message('op', 'add', 'to', name, 'body', member)
        end
        return
    end
    if relay_gate == nil then relay_gate = open_gate(tag .. ':tampu:gate') or false end
    for _, member in ipairs(members) do
        local job, body, extras = split_job(member)
        if relay_gate then relay_gate.enter(relay_gate.line_of(extras), { member })
        else add_entry(body, job, extras) end
    end
end
-- pass_gate(ids): what settled entries held is free, and what was added may pass.
local function pass_gate(ids)
    if relay_gate == nil then relay_gate = open_gate(tag .. ':tampu:gate') or false end
    if relay_gate then
        relay_gate.let_go(ids)
        relay_gate.pass()
    end
end
