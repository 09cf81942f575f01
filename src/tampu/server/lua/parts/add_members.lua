-- add_members(name, members): add jobs, to this queue if `name` is '', else by the outbox. After
-- `member`, `add_entry`, `gate` and `outbox`. `tag` is what all keys of the queue begin with.
-- pass_gate(ids): what settled entries held is free, and what was added may pass.
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
local function pass_gate(ids)
    if relay_gate == nil then relay_gate = open_gate(tag .. ':tampu:gate') or false end
    if relay_gate then
        relay_gate.let_go(ids)
        relay_gate.pass()
    end
end
