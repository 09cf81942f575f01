-- emit_event(kind, id, name, stamp): write an event of a job to `events`; if that fails, it is no error.
local function emit_event(kind, id, name, stamp)
    if name == '' then
        redis.pcall('XADD', events, '*', 'e', kind, 'id', id, 'ts', stamp)
    else
        redis.pcall('XADD', events, '*', 'e', kind, 'id', id, 'ts', stamp, 'n', name)
    end
end
