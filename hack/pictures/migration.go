package main

import "github.com/interlock-go/lock/hack/pictures/draw"

// Package migrate has the rule.
var migration = draw.Picture{
	Name:  "migration",
	Title: "The three phases of a migration",
	Alt: "Three columns. A process in phase old takes the old lock, in phase both the old lock and then the new one, in phase new the new lock. " +
		"Phases old and both exclude each other by the old lock, phases both and new by the new lock. " +
		"Phases old and new have no lock in common, so they never run side by side.",
	Draw: func(c *draw.Canvas) {
		const w, gap, y = 168, 12, 16
		x := func(i int) int { return 16 + i*(w+gap) }
		for i, phase := range []string{"phase old", "phase both", "phase new"} {
			c.Text(x(i), y, w, "middle", "bold", phase)
		}
		for row, lockName := range []string{"the old lock", "the new lock"} {
			for i := range 3 {
				kind, text := draw.Good, lockName
				if i == 2-2*row {
					kind, text = draw.Dim, "not used"
				}
				c.Box(x(i), y+28+row*50, w, 36, kind, text)
			}
		}
		c.Text(x(1), y+126, w, "middle", "faint", "first the old one, then the new one")
		brace := func(from, to, y int, kind draw.Kind, text string) {
			c.Arrow(x(from)+w/2+6, y, x(to)+w/2-6, y, kind)
			c.Arrow(x(to)+w/2-6, y, x(from)+w/2+6, y, kind)
			c.Text(x(from)+w/2, y+8, x(to)-x(from), "middle", "", text)
		}
		brace(0, 1, y+186, draw.Good, "exclude each other by the old lock")
		brace(1, 2, y+186, draw.Good, "exclude each other by the new lock")
		brace(0, 2, y+258, draw.Bad, "no lock in common: never side by side")
	},
}
