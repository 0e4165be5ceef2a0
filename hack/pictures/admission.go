package main

import "github.com/interlock-go/lock/hack/pictures/draw"

// docs/sharing.md has the rule.
var admission = draw.Picture{
	Name:  "admission",
	Title: "Admission of readers, writers and permits",
	Alt: "A queue in the order of arrival: R1, R2, W3, R4, R5. Readers 1 and 2 hold together; writer 3 waits for both, and readers 4 and 5 wait behind it. " +
		"Then writer 3 holds alone, then readers 4 and 5 together. Below, a semaphore of four permits: A holds two and B one, " +
		"the head of the queue wants two and waits although one is free, and a request for one waits behind it.",
	Draw: func(c *draw.Canvas) {
		cell := func(text string, parts int, kind draw.Kind) draw.Cell {
			return draw.Cell{Text: text, Parts: parts, Kind: kind}
		}
		y := 16 + c.Text(16, 16, draw.Width-32, "start", "bold", "Readers (R) and writers (W)") + 6
		y = draw.Strips(c, y,
			draw.Row{Heading: "R1 and R2 hold together. W3 does not fit, and all behind it wait:", Cells: []draw.Cell{
				cell("R1", 2, draw.Good), cell("R2", 2, draw.Good), cell("W3 waits", 3, draw.Warn), cell("R4 waits", 2, draw.Dim), cell("R5 waits", 2, draw.Dim)}},
			draw.Row{Heading: "R1 and R2 have unlocked: W3 holds alone.", Cells: []draw.Cell{
				cell("W3", 3, draw.Good), cell("R4 waits", 2, draw.Warn), cell("R5 waits", 2, draw.Dim)}},
			draw.Row{Heading: "W3 has unlocked: R4 and R5 hold together.", Cells: []draw.Cell{
				cell("R4", 2, draw.Good), cell("R5", 2, draw.Good)}},
		)
		y += 4 + c.Text(16, y, draw.Width-32, "start", "bold", "A semaphore of four permits") + 6
		draw.Strips(c, y,
			draw.Row{Heading: "One permit is free. C wants two, and D waits behind it:", Cells: []draw.Cell{
				cell("A: 2", 2, draw.Good), cell("B: 1", 2, draw.Good), cell("1 free", 2, draw.Plain), cell("C wants 2", 3, draw.Warn), cell("D wants 1", 3, draw.Dim)}},
			draw.Row{Heading: "B has unlocked: two permits are free, and C holds them.", Cells: []draw.Cell{
				cell("A: 2", 2, draw.Good), cell("C: 2", 2, draw.Good), cell("D wants 1", 3, draw.Warn)}},
		)
	},
}
