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
-- join_member(name, envelope, extras): the bytes of a job as one text, as in the delayed set.
-- split_job(member): name, envelope, extras ('': none) of a job that is known to be one.
-- extras_of(member): only the extras.
-- facts_of(extras): its line, its deadline in ms, its cost; nil for each that it does not have. They
-- are the first fields of extras, in this order; also the position after them.
local byte, sub, MAGIC = string.byte, string.sub, '\193TX\1'
local function length_text(size)
    return string.char(size % 256, math.floor(size / 256) % 256, math.floor(size / 65536), 0)
end
local function join_member(name, envelope, extras)
    if extras ~= '' then extras = extras .. length_text(#extras) .. MAGIC end
    return length_text(#name) .. name .. envelope .. extras
end
local function split_job(member)
    local low, high = byte(member, 1, 2)
    local start = 5 + low + high * 256
    local name = sub(member, 5, start - 1)
    -- Compared byte by byte: a text of these four would have to be made for each job.
    local a, b, c, _, m, t, x, one = byte(member, -8, -1)
    if one == 1 and x == 88 and t == 84 and m == 193 then
        local cut = #member - 8 - a - b * 256 - c * 65536
        if cut > start and byte(member, cut + 1) >= 128 then
            return name, sub(member, start, cut), sub(member, cut + 1, -9)
        end
    end
    return name, sub(member, start), ''
end
local function extras_of(member)
    local _, _, extras = split_job(member)
    return extras
end
local function number_at(text, at)
    local head, a, b, c, d, e, f, g, h = byte(text, at, at + 8)
    if head < 128 then return head, at + 1 end
    if head == 204 then return a, at + 2 end
    if head == 205 then return a * 256 + b, at + 3 end
    local low = a * 16777216 + b * 65536 + c * 256 + d
    if head == 206 then return low, at + 5 end
    return low * 4294967296 + e * 16777216 + f * 65536 + g * 256 + h, at + 9
end
local function facts_of(extras)
    local line, deadline, cost, at = nil, nil, nil, 2
    if sub(extras, 2, 6) == '\164line' then
        local head, a, b = byte(extras, 7, 9)
        local size = head - 160
        at = 8
        if head == 217 then size, at = a, 9 elseif head == 218 then size, at = a * 256 + b, 10 end
        line = sub(extras, at, at + size - 1)
        at = at + size
    end
    if sub(extras, at, at + 11) == '\171deadline_ms' then
        deadline, at = number_at(extras, at + 12)
    end
    if sub(extras, at, at + 4) == '\164cost' then cost, at = number_at(extras, at + 5) end
    return line, deadline, cost, at
end
