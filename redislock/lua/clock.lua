local t = redis.call('TIME')
local us = t[1] * 1000000 + t[2]
