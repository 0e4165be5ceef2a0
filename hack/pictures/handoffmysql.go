package main

import "github.com/interlock-go/lock/hack/pictures/draw"

// docs/adr/0011-mysql-notifier.md and 0030-mysql-queue-of-rows.md have the protocol.
var handOffMySQL = draw.Picture{
	Name:  "handoff-mysql",
	Title: "Hand-off on MySQL and MariaDB",
	Alt: "Sequence. A has a row and a named lock with its owner id. B is a row of the queue, and one connection of its process blocks in GET_LOCK on A's named lock. " +
		"Unlock of A is one packet: it grants the row to B for 3 seconds at most, commits and releases the named lock. " +
		"The server wakes B, whose packet then reads the row. The row decides, the named lock only wakes.",
	Draw: func(c *draw.Canvas) {
		draw.Sequence(c, 16, []string{"A holds", "MySQL, MariaDB", "B waits"},
			draw.Begin(0, draw.Good),
			draw.Send(2, 1, "Lock: a row in the queue"),
			draw.Send(2, 1, "one packet: GET_LOCK of A's named lock, then read the row"),
			draw.Note(1, 1, draw.Dim, "the server blocks B's connection"),
			draw.Send(0, 1, "Unlock: one packet"),
			draw.End(0),
			draw.Note(1, 1, draw.Accent, "grants the row to B for 3 s at most, commits, releases A's named lock"),
			draw.Grant(1, 2, "GET_LOCK ends, and the row says: B, token 42"),
			draw.Begin(2, draw.Good),
			draw.Note(2, 2, draw.Good, "Lock returns: the row decides, the named lock only wakes"),
			draw.Send(2, 1, "20 ms later: renew to the full TTL"),
		)
	},
}
