package main

import "github.com/interlock-go/lock/hack/pictures/draw"

// docs/adr/0012-redlock.md has the protocol.
var handOffRedlock = draw.Picture{
	Name:  "handoff-redlock",
	Title: "Hand-off with Redlock",
	Alt: "Sequence with three nodes. Unlock of A sends one script to every node. Each node gives its vote to B, the first waiter of its queue, " +
		"and publishes that. When B has the votes of two of the three nodes, it holds; the third vote may come later.",
	Draw: func(c *draw.Canvas) {
		draw.Sequence(c, 16, []string{"A holds", "node 1", "node 2", "node 3", "B waits"},
			draw.Begin(0, draw.Good),
			draw.Send(0, 1, "Unlock"),
			draw.Send(0, 2, "Unlock, sent at once"),
			draw.Send(0, 3, "Unlock, sent at once"),
			draw.End(0),
			draw.Note(1, 3, draw.Accent, "each node gives its vote to the first waiter of its own queue"),
			draw.Grant(1, 4, "vote of node 1"),
			draw.Grant(2, 4, "vote of node 2"),
			draw.Begin(4, draw.Good),
			draw.Note(3, 4, draw.Good, "a majority agrees on a token: Lock returns"),
			draw.Send(3, 4, "vote of node 3"),
		)
	},
}
