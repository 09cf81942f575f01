        -- sorting: jobs that do not pass because they are expired or paused, and lines with weights.
        local function pause_of(name, line)
            local own = string.gsub(name, '[%%|/:]', function(c) return string.format('%%%02X', string.byte(c)) end)
            if pauses[own] then return own end
            if sub(line, 2, 2) == '/' then
                local both = own .. string.match(line, '^.(/[^|]*)')
                if pauses[both] then return both end
            end
        end
        -- The rate with the fewest tokens, if jobs take more than one.
        local function scarcest(resources)
            local found
            if not resources or not has('c') then return nil end
            for _, r in ipairs(resources.name and { resources } or resources) do
                if r.tat and (not found or r.more < found.more) then found = r end
            end
            return found
        end
        -- Sorts out jobs of a line; returns those that may pass, what they cost, and what stops the rest.
        function sorting.sort_out(line, members, tag, resources, pass)
            local able, cost, rate = {}, 0, scarcest(resources)
            for i = 1, #members do
                local member = members[i]
                if rate and cost >= rate.more then
                    for j = #members, i, -1 do call('LPUSH', LINE .. line, members[j]) end
                    return able, cost, rate
                end
                local name, _, extras = split_job(member)
                local what = next(pauses) and pause_of(name, line)
                if what and find(line, '|!:' .. what, 1, true) then what = nil end  -- its resource decides
                local _, deadline, price = facts_of(extras)
                -- Lines whose jobs are counted, or run in order, wait as a whole: none leaves them.
                if what and (find(line, '|>:', 1, true) or find(line, '|@:', 1, true)) then
                    for j = #members, i, -1 do call('LPUSH', LINE .. line, members[j]) end
                    return able, cost, count_resources().resource('!:' .. what)
                elseif what then
                    local other, held_by = line .. '|!:' .. what, count_resources().resource('!:' .. what)
                    if call('RPUSH', LINE .. other, member) == 1 then counts.park(other, tag, held_by) end
                elseif deadline and deadline * 1000 < clock() then
                    pass(member, nil, nil, true)  -- the worker buries it; it takes no slot and no token
                    through = through + 1
                else
                    able[#able + 1] = member
                    cost = cost + (price or 1)
                end
            end
            return able, cost
        end

        -- By weight: the next job is that of the line with the lowest tag, which grows by 1/weight.
        function sorting.share_by_weight(popped, weights, room)
            local wanted, order, heap = {}, {}, {}
            for i = 1, #popped, 2 do
                heap[#heap + 1] = { tonumber(popped[i + 1]), #heap + 1 }
                wanted[#heap] = 0
            end
            local function before(a, b) return a[1] < b[1] or a[1] == b[1] and a[2] < b[2] end
            for _ = 1, room do
                local top = heap[1]
                order[#order + 1] = top[2]
                wanted[top[2]] = wanted[top[2]] + 1
                top[1] = top[1] + 1 / weights[top[2]]
                local at, size = 1, #heap
                while true do
                    local low = 2 * at
                    if low > size then break end
                    if low < size and before(heap[low + 1], heap[low]) then low = low + 1 end
                    if not before(heap[low], top) then break end
                    heap[at], heap[low], at = heap[low], top, low
                end
            end
            return wanted, order
        end
        function sorting.weights_of(popped)
            local keys = {}
            for i = 1, #popped, 2 do keys[#keys + 1] = string.match(popped[i], '^./([^|]*)') or '' end
            local weights = call('HMGET', key .. ':weight', unpack(keys))
            for i = 1, #keys do
                weights[i] = weights[i] and tonumber(string.match(weights[i], '[%d.e+-]+')) or 1
            end
            return weights
        end
