package main

var redisConnectionSteps = []Step{
	{"Redis: a connection as old as one that had no reply is not used again", "redislock/internal/redisurl/stale.go",
		"case c.received.Load() < c.to.failed.Load():",
		"case false:", "redislock", "TestStaleConnections"},
	{"Redis: a connection to a demoted server is not used again", "redislock/internal/redisurl/stale.go",
		"if cannotWrite(b[:n]) {",
		"if false {", "redislock", "TestDemotedServer"},
	{"Redis: a subscription is checked after a request without a reply", "redislock/listener.go",
		"if l.received.Load() == before &&",
		"if l.received.Load() < before &&", "redislock", "TestStaleConnections"},
	{"Redis: a request that a demoted server refused is sent once more", "redislock/cluster.go",
		"\tif server.CannotWrite(err) {\n\t\tb.subs",
		"\tif false {\n\t\tb.subs", "redislock", "TestDemotedServer"},
}
