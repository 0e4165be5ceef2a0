package main

const redisShares = "TestConformanceStandalone/^redis-8$/./shared/"

var redisShareSteps = []Step{
	{"Redis: the weights of a semaphore are at most its capacity", "redislock/internal/protocol/lua/share.lua",
		"return c == 0 or select(2, string.gsub(permits, '0', '')) >= weight",
		"return true", "integration/redis", redisShares + "45-permits"},
	{"Redis: one capacity at a time", "redislock/internal/protocol/lua/share.lua",
		"if shared then return capacity ~= c and capacity end",
		"if shared then return nil end", "integration/redis", redisShares + "45-another"},
	{"Redis: a slot has one holder", "redislock/internal/protocol/lua/share.lua",
		"    mark(slots, '1')\n",
		"", "integration/redis", redisShares + "45-slots"},
	{"Redis: a share whose lease has ended is not renewed", "redislock/internal/protocol/lua/share.lua",
		"if at and at > us then",
		"if at then", "redislock", "TestRenewalOfAnExpiredShare"},
	{"Redis: a first waiter is suspect only after it was asked", "redislock/lua/ask.lua",
		"age < PROVISIONAL_TTL or ",
		"", "redislock", "TestStoppedWriterBeforeReaders"},
	{"Redis: a question that was asked long ago makes no waiter suspect", "redislock/lua/ask.lua",
		"or age > 3 * PROVISIONAL_TTL then return end",
		"then return end", "redislock", "TestLiveWriterBeforeReaders"},
	{"Redis: a first waiter that polls has answered", "redislock/lua/acquire.lua",
		"    redis.call('ZREM', KEYS[2], '?' .. owner) -- it is alive\n",
		"", "redislock", "TestLiveWriterBeforeReaders"},
	{"Redis: another share asks when the one that asked leaves", "redislock/ask.go",
		"\tif next != nil {",
		"\tif false {", "redislock", "TestStoppedWriterBeforeReaders"},
	{"Redis: a full memory refuses no renewal of a share", "redislock/internal/protocol/lua/share.lua",
		"    despite_memory()\n    redis.call('ZADD', ENDS, integer(exactly",
		"    redis.call('ZADD', ENDS, integer(exactly", "redislock", "TestSharesOutOfMemory"},
}
