        -- put_back(line, member): a job waits at the head of its line again.
        -- remove(line, member): a job waits no more; false if it did not.
        -- line_of(extras): the line of a job.
        -- let_go(ids): what the entries with these ids held is free: they were settled.
        -- close(name, till): what needs this resource waits until then (ms); false if it does already.
        -- refund(extras, id): a job goes back to its line that had passed as this entry, and did not start.
        -- reopen, override, charge: as in gate_counts.
        -- set_room(consumer, count): how many entries a worker can have; 0 when it takes none.
        function gate.put_back(line, member)
            if call('LPUSH', LINE .. line, member) == 1 then join_ring(line) end
            waiting = waiting + 1
        end
        function gate.remove(line, member)
            if call('LREM', LINE .. line, 1, member) == 0 then return false end
            waiting = waiting - 1
            return true
        end
        function gate.line_of(extras)
            return extras ~= '' and facts_of(extras) or PLAIN
        end
        function gate.let_go(ids)
            if #ids == 0 or not has('h') then return end  -- 'h': something was held since there is a gate
            count_resources().let_go(ids)
        end
        function gate.close(name, till) return count_resources().close(name, till) end
        function gate.reopen(names) count_resources().reopen(names) end
        function gate.override(name, own) count_resources().override(name, own) end
        function gate.refund(extras, id)
            if extras == '' or not has('r') then return end
            local line, _, cost = facts_of(extras)
            if line then count_resources().refund(line, cost or 1, id) end
        end
        function gate.charge(name, tokens) return count_resources().charge(name, tokens) end
        function gate.set_room(consumer, count)
            local before = tonumber(call('HGET', key .. ':want', consumer) or 0)
            if count == before then return end
            if count == 0 then call('HDEL', key .. ':want', consumer)
            else call('HSET', key .. ':want', consumer, count) end
            capacity = call('HINCRBY', key, 'room', count - before)
        end
