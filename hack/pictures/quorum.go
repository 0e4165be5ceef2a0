package main

import (
	"fmt"

	"github.com/interlock-go/lock/hack/pictures/draw"
)

// docs/adr/0050-redlock-quorum.md has the rule.
var quorum = draw.Picture{
	Name:  "redlock-quorum",
	Title: "The quorum of Redlock",
	Alt: "Five independent Redis masters. Client A has the votes of nodes 1, 2 and 3, which is a majority, so it holds the lock. " +
		"Client B has the vote of node 4 only, so it waits. Node 5 was restarted without its data and has no vote for restart_delay. " +
		"Two majorities of five nodes always share a node, so there is at most one holder.",
	Draw: func(c *draw.Canvas) {
		const w, gap = 96, 12
		x := func(i int) int { return 16 + i*(w+gap) }
		c.Box(x(0), 16, 3*w+2*gap, 0, draw.Good, "client A: 3 of 5 votes, it holds")
		c.Box(x(3), 16, w, 0, draw.Warn, "client B: 1 vote")
		for i := range 5 {
			kind, text := draw.Good, "vote: A"
			switch i {
			case 3:
				kind, text = draw.Warn, "vote: B"
			case 4:
				kind, text = draw.Bad, "no vote"
			}
			if i < 4 {
				c.Arrow(x(i)+w/2, 116, x(i)+w/2, 74, draw.Plain)
			}
			c.Box(x(i), 118, w, 58, kind, fmt.Sprintf("node %d\n%s", i+1, text))
		}
		y := 190
		for _, line := range []string{
			"A lease lasts as long as the best majority certainly keeps it.",
			"B releases it, and asks again when A has released the lock.",
			"Node 5 was restarted without its data. It has no vote for restart_delay, longer than any lease that it may have forgotten.",
		} {
			y += c.Text(16, y, draw.Width-32, "start", "faint", line) + 6
		}
	},
}
