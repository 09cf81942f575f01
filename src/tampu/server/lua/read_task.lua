-- read_task: what is stored of a task, by the server's clock.
-- KEYS  1 course (hash)   2 the state as a plain store keeps it
-- ARGV  none
-- reply {now in ms, version ('0': none), state (of version 0: the plain store's; nil: none),
--        '1' if it has ended and was deleted, and of the run in flight
--        token, until, at, catch_up, manual (all nil: none)}
-- Atomic because the clock and the task must be of one moment.
local course = KEYS[1]
-- with parts/course
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local version, _, flight = known()
local state
if version == '0' then
    state = redis.pcall('GET', KEYS[2])
    if type(state) == 'table' then state = '' end  -- no string: as good as one that says nothing
else
    state = redis.call('HGET', course, 'state') or ''
end
local ended = redis.call('HGET', course, 'ended')
return { now, version, state, ended, unpack(flight or { false, false, false, false, false }) }
