package main

import "github.com/interlock-go/lock/hack/pictures/draw"

// docs/fencing.md has the rule.
var staleHolder = draw.Picture{
	Name:  "stale-holder",
	Title: "A stale holder is stopped by its fencing token",
	Alt: "Sequence: client A is granted the lock with token 33 and is then stopped for longer than its lease. The lock expires, " +
		"and client B is granted it with token 34 and writes. When A continues, its write with token 33 arrives at the store, " +
		"which has seen 34 and refuses it.",
	Draw: func(c *draw.Canvas) {
		draw.Sequence(c, 16, []string{"client A", "lock service", "client B", "the store"},
			draw.Grant(1, 0, "granted,\ntoken 33"),
			draw.Begin(0, draw.Good),
			draw.Note(0, 0, draw.Bad, "stopped: a pause, a debugger, a suspended machine"),
			draw.Begin(0, draw.Bad),
			draw.Note(1, 1, draw.Warn, "the lease of A expires"),
			draw.Grant(1, 2, "granted,\ntoken 34"),
			draw.Begin(2, draw.Good),
			draw.Grant(2, 3, "write, token 34"),
			draw.Note(3, 3, draw.Good, "34 is the greatest so far: written"),
			draw.Note(0, 0, draw.Warn, "continues with the write that it had begun"),
			draw.End(0),
			draw.Refuse(0, 3, "write, token 33"),
			draw.Note(3, 3, draw.Bad, "33 < 34: refused"),
		)
	},
}
