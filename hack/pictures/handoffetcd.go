package main

import "github.com/interlock-go/lock/hack/pictures/draw"

// docs/adr/0051-places.md has the protocol.
var handOffEtcd = draw.Picture{
	Name:  "handoff-etcd",
	Title: "Hand-off on etcd",
	Alt: "Sequence. Lock of B is one transaction, which puts a key under the lease of its process; its revision is the token. " +
		"The process watches the keys before its own. Unlock of A deletes its key, the event reaches B, whose key is the first one now, and B holds without a request.",
	Draw: func(c *draw.Canvas) {
		draw.Sequence(c, 16, []string{"A holds", "etcd", "B waits"},
			draw.Begin(0, draw.Good),
			draw.Send(2, 1, "Lock: one transaction puts a key; its revision 42 is the token"),
			draw.Send(2, 1, "watches of the two keys before its own"),
			draw.Send(0, 1, "Unlock: one transaction"),
			draw.End(0),
			draw.Note(1, 1, draw.Accent, "deletes A's key"),
			draw.Grant(1, 2, "event: the key before was deleted"),
			draw.Begin(2, draw.Good),
			draw.Note(2, 2, draw.Good, "B's key is the first one: Lock returns, no request"),
		)
	},
}
