local t = redis.call('TIME')
local us = t[1] * 1000000 + t[2]

-- What the scripts for nodes of a Redlock replace: the least value of a new token, how the fence counter is written,
-- what a reply says of the server, and the announcement of the end of a grant.
local least = us
local function keep_token(text) redis.call('SET', KEYS[3], text) end
local function life() end
local function announce() end
