-- is_recent(list, token): whether a token is in the list of the last ones.
-- remember(list, token): the list with one more. It keeps the newest 16: a repeated call comes soon
-- after a lost reply, with few other calls in between.
local function is_recent(list, token)
    return string.find(list, token, 1, true) ~= nil
end
local function remember(list, token)
    return token .. ' ' .. string.sub(list, 1, 15 * (#token + 1))
end
