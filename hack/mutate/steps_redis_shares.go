package main

const redisShares = "TestConformanceStandalone/^redis-8$/./shared/"

var redisShareSteps = []Step{
	{"Redis: the weights of a semaphore are at most its capacity", "redislock/lua/common.lua",
		"return held + weight <= capacity",
		"return true", "integration/redis", redisShares + "45-permits"},
	{"Redis: a slot has one holder", "redislock/lua/common.lua",
		"  mark(slots, '1')\n",
		"", "integration/redis", redisShares + "45-slots"},
	{"Redis: a share whose lease has ended is not renewed", "redislock/lua/common.lua",
		"KEYS[5], '-inf', integer(us),",
		"KEYS[5], '-inf', '-inf',", "redislock", "TestRenewalOfAnExpiredShare"},
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
	{"Redis: a full memory refuses no renewal of a share", "redislock/lua/renew.lua",
		"  despite_memory()\n",
		"", "redislock", "TestSharesOutOfMemory"},
}
