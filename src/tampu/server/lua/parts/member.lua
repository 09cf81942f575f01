-- split_member(member): the name and the envelope of a delayed member; nil if it holds no job.
local function split_member(member)
    local a, b, c, d = string.byte(member, 1, 4)
    local start = d and 5 + a + b * 256 + c * 65536 + d * 16777216
    if not start or start > #member then return nil end
    return string.sub(member, 5, start - 1), string.sub(member, start)
end
-- job_id_of(envelope): the job's id, '' if it cannot be read, and the position after it.
local function job_id_of(envelope)
    local head, length = string.byte(envelope, 2, 3)
    if not head then return '' end
    if head >= 0xa0 and head <= 0xbf then
        return string.sub(envelope, 3, head - 0xa0 + 2), head - 0xa0 + 3
    end
    if head == 0xd9 and length then return string.sub(envelope, 4, 3 + length), 4 + length end
    if head == 0xda then
        local high, low = string.byte(envelope, 3, 4)
        if not low then return '' end
        length = high * 256 + low
        return string.sub(envelope, 5, 4 + length), 5 + length
    end
    return ''
end
