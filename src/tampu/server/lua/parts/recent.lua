-- recent(list, token): whether a token is among those that were noted last.
-- noted(list, token): the list with one more. It keeps the newest 16: a call that is sent again
-- after a lost reply comes soon, and few calls for one thing are made in between.
local function recent(list, token)
    return string.find(list, token, 1, true) ~= nil
end
local function noted(list, token)
    return token .. ' ' .. string.sub(list, 1, 15 * (#token + 1))
end
