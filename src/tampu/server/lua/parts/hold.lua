-- hold(what, left, till): workers give back the jobs that this covers and that have not started, for so
-- many ms ('': until `unhold`), but not those that passed at `till` or later (ms; '': all). `what` is
-- what a pause covers, a breaker, or `|` and another resource. With `control`, and `kept`, how long it
-- is kept (ms).
local function tell(op, what, left, till)
    redis.call('XADD', control, 'MAXLEN', '~', 1000, '*', 'op', op, 'what', what, 'left', left, 'till', till)
    redis.call('PEXPIRE', control, kept)
end
local function hold(what, left, till) tell('hold', what, left, till or '') end
local function unhold(what) tell('unhold', what, '', '') end
