-- search_lines: find jobs by their ids in lines.
-- KEYS  1 gate (hash)
-- ARGV  1 how many jobs of the first line to pass over ('near': look only around the place that an id
--         has if all of its line were added in the order of their ids, which begin with a time)
--       2 about how many jobs to look at   3 how many ids follow   4.. the ids, then the lines
-- reply {how many lines were searched to their end, how many jobs of the next one were looked at,
--       how many jobs were looked at, then for each job  the number of its line from 1, its member}
-- Atomic because jobs that pass meanwhile would move the others to other places.
local key, AROUND, A_PAGE = KEYS[1] .. ':line:', 256, 500
-- with parts/member
local most, last, looked = tonumber(ARGV[2]), 3 + tonumber(ARGV[3]), 0
local wanted, reply = {}, { 0, 0, 0 }
for i = 4, last do wanted[ARGV[i]] = true end

local function id_in(member)
    local _, envelope = split_member(member)
    return envelope and job_id_of(envelope) or ''
end
local function look(number, first, count)
    local members = redis.call('LRANGE', key .. ARGV[last + number], first, first + count - 1)
    for i = 1, #members do
        if wanted[id_in(members[i])] then
            reply[#reply + 1], reply[#reply + 2] = number, members[i]
        end
    end
    looked = looked + #members
    return #members
end
-- Where an id belongs. Ids that users chose tell no time, so their neighbours are asked.
local function place_of(id, line)
    local low, high = 0, redis.call('LLEN', key .. line)
    while high - low > AROUND do
        local middle, other = math.floor((low + high) / 2), nil
        for _, member in ipairs(redis.call('LRANGE', key .. line, middle, middle + 7)) do
            local found = id_in(member)
            if #found == 26 then
                other = found
                break
            end
        end
        if not other then return 0 end
        if other < id then low = middle else high = middle end
    end
    return low
end

local number, place = 1, ARGV[1] ~= 'near' and tonumber(ARGV[1])
while last + number <= #ARGV and looked < most do
    if place then
        local count = look(number, place, A_PAGE)
        place = count == A_PAGE and place + count or 0
    else
        for i = 4, last do look(number, math.max(0, place_of(ARGV[i], ARGV[last + number]) - AROUND), 3 * AROUND) end
    end
    if not place or place == 0 then number = number + 1 end
end
reply[1], reply[2], reply[3] = number - 1, place or 0, looked
return reply
