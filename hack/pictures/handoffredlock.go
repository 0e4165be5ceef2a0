package main

import "github.com/interlock-go/lock/hack/pictures/draw"

// docs/adr/0050-redlock-quorum.md has the protocol.
var handOffRedlock = draw.Picture{
	Name:  "handoff-redlock",
	Title: "Hand-off with Redlock",
	Alt: "Sequence with three nodes. Unlock of A sends one script to every node. Each node releases the lock and announces that to the " +
		"processes that wait. B asks all nodes after a short time at random. When two of the three nodes have granted it the lock, it holds; " +
		"the third grant may come later.",
	Draw: func(c *draw.Canvas) {
		draw.Sequence(c, 16, []string{"A holds", "node 1", "node 2", "node 3", "B waits"},
			draw.Begin(0, draw.Good),
			draw.Send(0, 1, "Unlock"),
			draw.Send(0, 2, "Unlock, sent at once"),
			draw.Send(0, 3, "Unlock, sent at once"),
			draw.End(0),
			draw.Send(1, 4, "released"),
			draw.Send(2, 4, "released"),
			draw.Note(1, 3, draw.Accent, "B asks all nodes after a short time at random"),
			draw.Grant(1, 4, "granted by node 1"),
			draw.Grant(2, 4, "granted by node 2"),
			draw.Begin(4, draw.Good),
			draw.Note(3, 4, draw.Good, "a majority: Lock returns"),
			draw.Send(3, 4, "granted by node 3"),
		)
	},
}
