-- each_key(key, maps, act): call `act` with every key of a flow; `maps` are its nodes with many jobs.
local function each_key(key, maps, act)
    act(key)
    act(key .. ':dead')
    act(key .. ':parked')
    for node in string.gmatch(maps, '%d+') do
        act(key .. ':' .. node)
        act(key .. ':' .. node .. ':out')
    end
end
