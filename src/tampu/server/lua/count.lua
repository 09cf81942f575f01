#!lua flags=allow-oom
-- count: add to the counts that are not part of the history yet.
-- KEYS  1 counts (hash)
-- ARGV  1.. in turns  the kind and the name of a task, how many
-- reply nothing
-- Atomic because either all or none of a batch must be counted.
for i = 1, #ARGV, 2 do
    redis.call('HINCRBY', KEYS[1], ARGV[i], ARGV[i + 1])
end
return 0
