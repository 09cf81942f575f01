-- open_rules(key, gate, pending): what jobs say about others that wait, `max_waiting`, `keep` and
-- `debounce`, and what follows from it. The jobs of one task and key wait in a line for each priority;
-- a rule counts them all. After `member`; with `tag`, what all keys of the queue begin with.
-- `gate`: the open gate, nil if it is opened later. `pending(line)`: the jobs that will enter then.
-- rule_of(extras): the rule of a job and the place where it is in them, nil if it has none.
local function rule_of(extras)
    local _, _, _, at = facts_of(extras)
    if string.sub(extras, at, at + 4) ~= '\164rule' then return nil end
    local head, a, b = string.byte(extras, at + 5, at + 7)
    if not b then return nil end
    local size, from = head - 160, at + 6
    if head == 217 then size, from = a, at + 7 elseif head == 218 then size, from = a * 256 + b, at + 8 end
    return string.sub(extras, from, from + size - 1), at
end
-- has_rule(extras): whether a job may have a rule.
local function has_rule(extras) return string.find(extras, '\164rule', 1, true) ~= nil end
-- forget_debounced(key, member, rule): a debounced job waits no more: the next one begins a new wait.
local function forget_debounced(key, member, rule)
    local name = string.match(rule or '', '^quiet %S+ %S+ (.*)$')
    if name and string.match(redis.call('GET', key .. ':debounce:' .. name) or '', '^%d+ (.*)$') == member then
        redis.call('DEL', key .. ':debounce:' .. name)
    end
end
local function open_rules(key, gate, pending)
    local events, notices = tag .. ':events', tag .. ':tampu:notices'
    -- with parts/announce
    -- with parts/end_output
    -- with parts/drop
    -- with parts/emit_event
    local KEPT_S, KNOWN_MS, OVERDUE_MS = 3600, 86400000, 2592000000
    local rules, dropped, lengths, count = {}, {}, {}, 0
    local levels = redis.call('HGET', key, 'levels') or ''
    local function id_in(member)
        local _, envelope = split_job(member)
        return job_id_of(envelope)
    end
    local function pending_in(line) return pending and pending(line) or {} end
    local function length_of(line)
        if not lengths[line] then lengths[line] = redis.call('LLEN', key .. ':line:' .. line) end
        return lengths[line] + #pending_in(line)
    end
    -- The lines of all priorities that are in use, and how many jobs wait in them.
    local function lines_of(line)
        local rest, found, total = string.sub(line, 2), {}, 0
        for digit = 0, 9 do
            local each = digit .. rest
            if string.find(levels, digit, 1, true) or #pending_in(each) > 0 then
                found[#found + 1] = each
                total = total + length_of(each)
            end
        end
        return found, total
    end
    local function head_of(line)
        return lengths[line] > 0 and redis.call('LINDEX', key .. ':line:' .. line, 0) or pending_in(line)[1]
    end
    local function created_at(member)
        local _, envelope = split_job(member)
        local _, at = job_id_of(envelope)
        local kind, a, b, c, d = string.byte(envelope, at, at + 4)
        if kind == 0xc4 and a then at = at + 2 + a
        elseif kind == 0xc5 and b then at = at + 3 + a * 256 + b
        elseif kind == 0xc6 and d then at = at + 5 + a * 16777216 + b * 65536 + c * 256 + d
        else return 0 end
        return string.byte(envelope, at) == 0xcf and #envelope >= at + 8 and (number_at(envelope, at)) or 0
    end
    -- Removes the job that was added first, of those that are next in these lines.
    local function drop_oldest(lines)
        local oldest, member, first
        for _, line in ipairs(lines) do
            if length_of(line) > 0 then
                local head = head_of(line)
                local at = #lines > 1 and created_at(head) or 0
                if not member or at < first then oldest, member, first = line, head, at end
            end
        end
        if lengths[oldest] > 0 then
            lengths[oldest] = lengths[oldest] - 1
            if gate then
                gate.remove(oldest, member)
            else
                redis.call('LPOP', key .. ':line:' .. oldest)
                redis.call('HINCRBY', key, 'waiting', -1)
            end
        else
            table.remove(pending_in(oldest), 1)
        end
        rules.drop(member)
    end
    local function latest_key(line) return key .. ':latest:' .. string.sub(line, 2) end

    -- The parts of a rule: its kind, and what belongs to it.
    function rules.read(text)
        local kind, a, b, c = string.match(text, '^(%S+) ?(%S*) ?(%S*) ?(.*)$')
        return kind, a, b, c
    end
    -- Drops a job that waited, was to be added, or was to run again.
    function rules.drop(member)
        dropped[#dropped + 1] = drop(member, KEPT_S)
        local name, envelope = split_job(member)
        local now = redis.call('TIME')
        local stamp = string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000))
        emit_event('dropped', job_id_of(envelope), name, stamp)
        count = count + 1
    end
    -- How many jobs wait in a line, over all priorities.
    function rules.count_waiting(line)
        local _, total = lines_of(line)
        return total
    end
    -- Makes room for one more job that is new in a line; false if the job itself is dropped.
    function rules.make_room(line, member, kind, most, mode)
        local lines, total = lines_of(line)
        local least = kind == 'last' and 0 or tonumber(most) - 1
        if kind == 'last' then redis.call('SET', latest_key(line), id_in(member), 'PX', KNOWN_MS) end
        if kind == 'most' and mode ~= 'drop_old' then return mode ~= 'drop_new' or total <= least end
        for _ = least + 1, total do drop_oldest(lines) end
        return true
    end
    -- Whether a newer job came into its line after this one, which is to run again.
    function rules.is_replaced(line, member)
        local latest = redis.call('GET', latest_key(line))
        if latest then return latest ~= id_in(member) end
        return rules.count_waiting(line) > 0
    end
    -- A job with the rule `last` waits for its next attempt for so many ms: the same, marked so that it
    -- is not taken for a new one then.
    function rules.run_later(line, name, body, extras, wait)
        local rule, at = rule_of(extras)
        redis.call('SET', latest_key(line), job_id_of(body), 'PX', string.format('%.0f', wait + KNOWN_MS))
        if rule == 'last' then
            extras = string.sub(extras, 1, at - 1) .. '\164rule\165again' .. string.sub(extras, at + 10)
        end
        return join_member(name, body, extras)
    end
    -- Whether a job enters its line that is due, or was added by a schedule; if not, it is dropped.
    function rules.enters(line, member, extras, is_fired)
        local text = rule_of(extras)
        if not text then return true end
        local kind, most, mode = rules.read(text)
        if kind == 'most' and not tonumber(most) then return true end
        if is_fired and mode == 'raise' then mode = 'drop_new' end
        local stays
        if kind == 'quiet' then
            forget_debounced(key, member, text)
            return true
        end
        if kind == 'again' then stays = not rules.is_replaced(line, member)
        else stays = kind ~= 'last' and kind ~= 'most' or rules.make_room(line, member, kind, most, mode) end
        if stays then lengths[line] = nil else rules.drop(member) end
        return stays
    end
    -- When a job with a rule `quiet` is due: it replaces the one that waits. What is known of that one is
    -- deleted when it is promoted. A peer's promoter does not do that, so it expires some day.
    function rules.replace_delayed(member, now, quiet, longest, name)
        local debounce = key .. ':debounce:' .. name
        local since, old = string.match(redis.call('GET', debounce) or '', '^(%d+) (.*)$')
        if old and redis.call('ZREM', tag .. ':delayed', old) == 1 then
            rules.drop(old)
        else
            since = string.format('%.0f', now)
        end
        local at = now + quiet
        if longest ~= '0' and at > since + longest then at = math.max(now, since + longest) end
        redis.call('SET', debounce, since .. ' ' .. member, 'PX', string.format('%.0f', at - now + OVERDUE_MS))
        return at
    end
    -- Writes down what was dropped, and tells callers who wait for it. Call it last.
    function rules.finish()
        if count > 0 then redis.call('HINCRBY', key, 'dropped', count) end
        announce_dropped(dropped, KEPT_S)
    end
    return rules
end
