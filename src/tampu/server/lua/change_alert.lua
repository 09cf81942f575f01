#!lua flags=allow-oom
-- change_alert: change the state of an alert, and note what is to be told of it.
-- KEYS  1 lock of the leader   2 alerts (hash)   3 notices to deliver (stream)
-- ARGV  1 holder   2 alert   3 its state as it was read ('': none)   4 its new state ('': none)
--       5 s to keep the states   6 s to keep notices   7 most notices
--       8.. in turns  a notifier, its notice
-- reply 1 changed | 0 the state is another one by now | -1 another process leads
-- Atomic because an alert that has fired must be told of, whoever dies in between, and because two
-- leaders may overlap for a moment.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return -1 end
local state = redis.call('HGET', KEYS[2], ARGV[2]) or ''
if state == ARGV[4] then return 1 end  -- sent again after a lost reply
if state ~= ARGV[3] then return 0 end
redis.call('XLEN', KEYS[3])  -- fails on a key of a wrong type, before anything is written
redis.call('HDEL', KEYS[2], ARGV[2])
if ARGV[4] ~= '' then
    redis.call('HSET', KEYS[2], ARGV[2], ARGV[4])
    redis.call('EXPIRE', KEYS[2], ARGV[5])
end
for i = 8, #ARGV, 2 do
    redis.call('XADD', KEYS[3], 'MAXLEN', ARGV[7], '*', 'n', ARGV[i], 'd', ARGV[i + 1])
end
if #ARGV >= 8 then redis.call('EXPIRE', KEYS[3], ARGV[6]) end
return 1
