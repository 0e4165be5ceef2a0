package main

import "github.com/interlock-go/lock/hack/pictures/draw"

// docs/adr/0005-filelock.md has the protocol of files.
var handOffLocal = draw.Picture{
	Name:  "handoff-local",
	Title: "Hand-off in memory and with files",
	Alt: "Sequence. In memory, Unlock of A makes the first waiter B the holder in one step and wakes no other goroutine. " +
		"With files, B watches the ticket before its own with inotify. Unlock of A deletes its ticket, the kernel notifies B, " +
		"and B holds as the owner of the lowest live ticket. The end of the process of A has the same effect.",
	Draw: func(c *draw.Canvas) {
		draw.Sequence(c, 16, []string{"A holds", "the space, or the directory", "B waits"},
			draw.Part("Memory"),
			draw.Begin(0, draw.Good),
			draw.Send(0, 1, "Unlock"),
			draw.End(0),
			draw.Note(1, 1, draw.Accent, "B is the holder, in the same step"),
			draw.Grant(1, 2, "wakes B, and no other"),
			draw.Begin(2, draw.Good),
			draw.Note(2, 2, draw.Good, "B holds"),
			draw.End(2),
			draw.Part("Files"),
			draw.Send(2, 1, "creates ticket 8 with a flock, watches ticket 7 (inotify)"),
			draw.Begin(0, draw.Good),
			draw.Send(0, 1, "Unlock: deletes ticket 7, or its process ends"),
			draw.End(0),
			draw.Grant(1, 2, "event of the kernel: ticket 7 is gone"),
			draw.Begin(2, draw.Good),
			draw.Note(2, 2, draw.Good, "ticket 8 is the lowest live one: B holds, token 8"),
		)
	},
}
