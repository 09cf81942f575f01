#!lua flags=allow-oom
-- cancel: take delayed jobs back, so that they will not run.
-- KEYS  1 delayed (sorted set)   2.. for each job  its index, its id's marker
-- ARGV  1.. for each job  its member ('': what its index holds)
-- reply for each job  its name if it was taken back | nil if it was not there
-- Atomic because a job is either taken back and never runs, or runs and was not taken back.
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
        names[i] = split(member) or ''
    end
end
return names
