#!lua flags=allow-oom
-- pause_queue: pause or resume a queue, and tell its workers.
-- KEYS  1 the state (exists while the queue is paused)   2 control (stream)
-- ARGV  1 '1' to pause, '0' to resume   2 ms to keep the control stream
-- reply 1 changed | 0 it was so already
-- Atomic because workers must learn of the states in the order in which they were set.
local state, control, paused = KEYS[1], KEYS[2], ARGV[1] == '1'
if paused == (redis.call('EXISTS', state) == 1) then return 0 end
if paused then
    local time = redis.call('TIME')
    redis.call('SET', state, string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)))
else
    redis.call('DEL', state)
end
redis.call('XADD', control, 'MAXLEN', '~', 1000, '*', 'op', paused and 'pause' or 'resume')
redis.call('PEXPIRE', control, ARGV[2])
return 1
