package main

const breakCase = "/./release/20-break-earlier-holder"

// breakSteps are the comparisons of the owner that Break expects.
var breakSteps = []Step{
	{"memory: Break compares the owner", "memlock/inspect.go",
		"if owner == \"\" || owner == g.attempt.Owner {",
		"if true {", "conformance", "TestMemlock" + breakCase},
	{"file: Break compares the owner", "filelock/inspect.go",
		"if owner != \"\" && owner != c.Owner {",
		"if false {", "filelock", "TestBreakComparesTheOwner"},
	{"BREAK compares the owner", "redislock/lua/break.lua",
		"if ARGV[2] == '' or ARGV[2] == (holder or shown(value)) then",
		"if true then", "redislock", rule},
	{"PostgreSQL: Break compares the owner", "pglock/sql/rule.sql",
		"IF self IN ('', l.owner) THEN",
		"IF true THEN", pgIn, pgRule},
	{"MySQL: Break compares the owner", "mysqllock/sql/rule.sql",
		"IF p_owner = '' OR held THEN",
		"IF TRUE THEN", mysqlIn, mysqlRule},
}
