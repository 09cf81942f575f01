-- read_task: everything that is stored about a shared task, and the server's clock.
-- KEYS  1 task (hash)   2 the state as a plain store keeps it
-- ARGV  none
-- reply {now in ms, version ('0': none), state (of version 0: the plain store's; nil: none),
--        '1' if it has ended and was deleted, and of the run in progress
--        token, until, at, catch_up, manual (all nil: none)}
-- Atomic because the clock and the task must be read at the same moment.
local task = KEYS[1]
-- with parts/shared_task
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local version, _, run = read_task()
local state
if version == '0' then
    state = redis.pcall('GET', KEYS[2])
    if type(state) == 'table' then state = '' end  -- not a string: treated like an empty state
else
    state = redis.call('HGET', task, 'state') or ''
end
local ended = redis.call('HGET', task, 'ended')
return { now, version, state, ended, unpack(run or { false, false, false, false, false }) }
