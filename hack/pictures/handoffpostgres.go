package main

import "github.com/interlock-go/lock/hack/pictures/draw"

// docs/adr/0048-postgresql-functions.md has the protocol.
var handOffPostgres = draw.Picture{
	Name:  "handoff-postgres",
	Title: "Hand-off on PostgreSQL",
	Alt: "Sequence. B is a row of the queue and listens. Unlock of A is one statement: its function locks the row of the lock " +
		"and grants it to B for 3 seconds at most. The commit sends a NOTIFY with the secret of A, whose hash B has read, so B holds without a question. B renews 20 ms later to its full TTL.",
	Draw: func(c *draw.Canvas) {
		draw.Sequence(c, 16, []string{"A holds", "PostgreSQL", "B waits, listens"},
			draw.Begin(0, draw.Good),
			draw.Send(2, 1, "Lock: one statement, a row in the queue with the hash of a secret"),
			draw.Send(0, 1, "Unlock: one statement, a function"),
			draw.End(0),
			draw.Note(1, 1, draw.Accent, "locks the row of the lock, grants it to B for 3 s at most, commits"),
			draw.Grant(1, 2, "NOTIFY: grant, token, the secret of A, whose hash B knows"),
			draw.Begin(2, draw.Good),
			draw.Note(2, 2, draw.Good, "Lock returns after one round trip"),
			draw.Send(2, 1, "20 ms later: renew to the full TTL"),
		)
	},
}
