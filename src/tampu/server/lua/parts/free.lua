-- free(kinds, at, holder): free the markers in KEYS after position `at` and return the last position.
-- Each letter of `kinds` stands for one: 'm' marks a job id as taken, 'u' is a unique key, which is
-- freed only if `holder` still holds it. With `holder` nil nothing is freed.
local function free(kinds, at, holder)
    for i = 1, #kinds do
        local key = KEYS[at + i]
        if holder and (string.sub(kinds, i, i) == 'm' or redis.call('GET', key) == holder) then
            redis.call('DEL', key)
        end
    end
    return at + #kinds
end
