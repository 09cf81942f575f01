#!lua flags=allow-oom
-- cancel: remove delayed jobs, so that they do not run.
-- KEYS  1 delayed (sorted set)   2.. for each job  its index, the marker of its id
-- ARGV  1.. for each job  its member ('': the one that its index holds)
-- reply for each job  its name if it was removed | nil if it was not delayed
-- Atomic because a job either is removed and never runs, or it runs and is not removed.
local delayed, names = KEYS[1], {}
-- with parts/member
for i, member in ipairs(ARGV) do
    local index, marker = KEYS[2 * i], KEYS[2 * i + 1]
    local indexed = redis.call('GET', index)
    if member == '' then member = indexed end
    names[i] = false
    if member and redis.call('ZREM', delayed, member) == 1 then
        if indexed == member then redis.call('DEL', index) end
        redis.call('DEL', marker)
        names[i] = split_member(member) or ''
    end
end
return names
