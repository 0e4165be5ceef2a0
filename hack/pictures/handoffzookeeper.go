package main

import "github.com/interlock-go/lock/hack/pictures/draw"

// docs/adr/0008-zookeeper.md has the protocol.
var handOffZooKeeper = draw.Picture{
	Name:  "handoff-zookeeper",
	Title: "Hand-off on ZooKeeper",
	Alt: "Sequence. Lock of B is one transaction, which creates a sequential node; the id of the transaction is the token. B watches the two nodes in front and its own. " +
		"Unlock of A deletes its node, the event reaches B on its own session, and B holds without a request, since no watch of its own node has fired.",
	Draw: func(c *draw.Canvas) {
		draw.Sequence(c, 16, []string{"A holds", "ZooKeeper", "B waits"},
			draw.Begin(0, draw.Good),
			draw.Send(2, 1, "Lock: one transaction creates a node; its id is the token"),
			draw.Send(2, 1, "lists once, watches the two nodes in front and its own"),
			draw.Send(0, 1, "Unlock"),
			draw.End(0),
			draw.Note(1, 1, draw.Accent, "deletes A's node"),
			draw.Grant(1, 2, "event: A's node was deleted"),
			draw.Begin(2, draw.Good),
			draw.Note(2, 2, draw.Good, "B's own watch is silent, so its node exists and is the first: Lock returns, no request"),
		)
	},
}
