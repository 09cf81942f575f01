-- send_message(...): write fields and values of a message to the outbox; the relay takes it on.
-- start_relays(): let workers start their relay, as they do when they learn that the queue needs one.
-- wake_relay(): wake the relay if something was written. Call it last.
-- `tag` is what all keys of the queue begin with.
local outbox, has_sent = tag .. ':tampu:outbox', false
local function start_relays()
    redis.call('XADD', tag .. ':tampu:control', 'MAXLEN', '~', 1000, '*', 'op', 'flows')
    redis.call('PEXPIRE', tag .. ':tampu:control', 86400000)
end
local function send_message(...)
    if not has_sent and redis.call('EXISTS', outbox) == 0 then start_relays() end
    has_sent = true
    redis.call('XADD', outbox, '*', ...)
end
local function wake_relay()
    if not has_sent then return end
    redis.pcall('LPUSH', outbox .. ':bell', '1')
    redis.pcall('LTRIM', outbox .. ':bell', 0, 0)
    redis.pcall('PEXPIRE', outbox .. ':bell', 60000)
end
