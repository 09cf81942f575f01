-- free_slots(key, ids, flags): free what settled entries held, and let other jobs through; without
-- `flags` all were settled.
local function free_slots(key, ids, flags)
    local gate, settled = open_gate(key), ids
    if not gate then return end
    if flags then
        settled = {}
        for i, flag in ipairs(flags) do
            if flag == '1' then settled[#settled + 1] = ids[i] end
        end
    end
    gate.let_go(settled)
    gate.pass()
end
