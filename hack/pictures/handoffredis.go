package main

import "github.com/interlock-go/lock/hack/pictures/draw"

// docs/adr/0006-redis.md has the protocol.
var handOffRedis = draw.Picture{
	Name:  "handoff-redis",
	Title: "Hand-off on Redis and Valkey",
	Alt: "Sequence. B waits in the queue of the lock and is subscribed to the channel of its process. Unlock of A is one script: " +
		"it gives the key to B for 3 seconds at most and publishes the grant. B holds after one round trip, and renews 20 ms later to its full TTL.",
	Draw: func(c *draw.Canvas) {
		draw.Sequence(c, 16, []string{"A holds", "Redis", "B waits"},
			draw.Begin(0, draw.Good),
			draw.Send(2, 1, "Lock: one script, which enters the queue"),
			draw.Send(0, 1, "Unlock: one script"),
			draw.End(0),
			draw.Note(1, 1, draw.Accent, "in one step: the key is B's for 3 s at most, with the next token"),
			draw.Grant(1, 2, "PUBLISH: grant, token 42"),
			draw.Begin(2, draw.Good),
			draw.Note(2, 2, draw.Good, "Lock returns after one round trip"),
			draw.Send(2, 1, "20 ms later: renew to the full TTL"),
		)
	},
}
