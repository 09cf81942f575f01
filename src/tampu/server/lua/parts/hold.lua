-- hold(what, left): workers give back the jobs that this covers and that have not started, for so many
-- ms ('': until `unhold`). With `control`, and `kept`, how long it is kept (ms).
local function tell(op, what, left)
    redis.call('XADD', control, 'MAXLEN', '~', 1000, '*', 'op', op, 'what', what, 'left', left)
    redis.call('PEXPIRE', control, kept)
end
local function hold(what, left) tell('hold', what, left) end
local function unhold(what) tell('unhold', what, '') end
