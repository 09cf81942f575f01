-- tell(kind, id, name, stamp): write to `events` what happened to a job; one that cannot be written
-- fails nobody.
local function tell(kind, id, name, stamp)
    if name == '' then
        redis.pcall('XADD', events, '*', 'e', kind, 'id', id, 'ts', stamp)
    else
        redis.pcall('XADD', events, '*', 'e', kind, 'id', id, 'ts', stamp, 'n', name)
    end
end
