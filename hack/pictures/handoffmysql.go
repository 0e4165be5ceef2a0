package main

import "github.com/interlock-go/lock/hack/pictures/draw"

// docs/adr/0049-mysql-service.md has the protocol.
var handOffMySQL = draw.Picture{
	Name:  "handoff-mysql",
	Title: "Hand-off on MySQL and MariaDB",
	Alt: "Sequence. B is a row of the queue, and one connection of its process sleeps in the server. " +
		"Unlock of A is one procedure: it grants the lock to B for 3 seconds at most, writes an event for B's process, commits, and ends the sleep with KILL QUERY. " +
		"B reads the event and holds.",
	Draw: func(c *draw.Canvas) {
		draw.Sequence(c, 16, []string{"A holds", "MySQL, MariaDB", "B waits"},
			draw.Begin(0, draw.Good),
			draw.Send(2, 1, "Lock: one procedure, which enters the queue"),
			draw.Note(1, 1, draw.Dim, "a connection of B's process sleeps in the server"),
			draw.Send(0, 1, "Unlock: one procedure"),
			draw.End(0),
			draw.Note(1, 1, draw.Accent, "the lock is B's for 3 s at most; an event; commit; KILL QUERY"),
			draw.Grant(1, 2, "the sleep ends: the event, token 42"),
			draw.Begin(2, draw.Good),
			draw.Note(2, 2, draw.Good, "Lock returns after one round trip"),
			draw.Send(2, 1, "20 ms later: renew to the full TTL"),
		)
	},
}
