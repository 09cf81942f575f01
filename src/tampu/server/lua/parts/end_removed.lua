-- end_removed(id, ttl): a job that waited was removed: its stream ends, and if it was one of a flow, the
-- flow learns that. After `outbox` and `end_output`. `tag` is what all keys of the queue begin with.
local REMOVED = cmsgpack.pack({ 'cancelled', '', '', '' })
local function end_removed(id, ttl)
    end_output(id, REMOVED, ttl)
    if string.sub(id, 27, 27) ~= '~' or string.match(id, '^%w+~%d+/%d+$') then return end
    local at, home = string.match(id, '^%w+~%d+%.?%d*!?%d*(@?)(.*)$')
    if at == '@' or home == '' then
        if home == '' then home = string.sub(tag, 10, -2) end  -- the name of this queue
        send_message('op', 'end', 'to', home, 'id', id, 'kind', 'c', 'value', REMOVED, 'place', '')
    end
end
