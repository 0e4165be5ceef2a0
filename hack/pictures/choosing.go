package main

import "github.com/interlock-go/lock/hack/pictures/draw"

// docs/choosing.md has the reasons.
var choosing = draw.Picture{
	Name:  "choosing",
	Title: "Which backend",
	Alt: "Decision tree. If the data can refuse a conflict itself, no lock is needed. If all contenders are in one process: memlock. " +
		"If they are on one machine: filelock. If the data is in PostgreSQL, MySQL or MariaDB: pglock or mysqllock with a guarded write. " +
		"If two holders are never acceptable and the resource cannot check tokens: etcdlock or zklock. If you run Redis or Valkey: redislock. " +
		"Otherwise the driver of a service that you run.",
	Draw: func(c *draw.Canvas) {
		draw.Ladder(c, 16, "yes", "no", "The driver of a service that you run already.\nIn every case: where two holders would do harm, let the resource check the fencing token.",
			draw.Rung{Question: "Can the data refuse a conflict by itself?", Answer: "No lock: a unique key, or one conditional UPDATE", Kind: draw.Plain},
			draw.Rung{Question: "Are all contenders in one process?", Answer: "memlock, or sync.Mutex", Kind: draw.Good},
			draw.Rung{Question: "Are all contenders on one machine?", Answer: "filelock", Kind: draw.Good},
			draw.Rung{Question: "Is the data in PostgreSQL, MySQL or MariaDB?", Answer: "pglock or mysqllock, with a guarded write", Kind: draw.Good},
			draw.Rung{Question: "Is a second holder never acceptable, and the resource cannot check tokens?", Answer: "etcdlock or zklock", Kind: draw.Good},
			draw.Rung{Question: "Do you run Redis or Valkey?", Answer: "redislock: the fastest", Kind: draw.Good},
		)
	},
}
