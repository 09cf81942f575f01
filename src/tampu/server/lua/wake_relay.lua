#!lua flags=allow-oom
-- wake_relay: tell the relay of an outbox that a transaction was committed.
-- KEYS  1 wakeup (list)
-- ARGV  1 ms that a wakeup waits for somebody
-- reply 1 told | 0 a wakeup waits already
-- Atomic because a wakeup without an expiry would stay for ever.
if redis.call('LLEN', KEYS[1]) > 0 then return 0 end
redis.call('LPUSH', KEYS[1], '1')
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
