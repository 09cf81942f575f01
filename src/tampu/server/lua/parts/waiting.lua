-- tell_waiting(id, name, stamp): write to `events` that a job may run now; one that cannot be
-- written fails nobody.
local function tell_waiting(id, name, stamp)
    if name == '' then
        redis.pcall('XADD', events, '*', 'e', 'waiting', 'id', id, 'ts', stamp)
    else
        redis.pcall('XADD', events, '*', 'e', 'waiting', 'id', id, 'ts', stamp, 'n', name)
    end
end
