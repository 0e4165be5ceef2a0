package main

import "github.com/interlock-go/lock/hack/pictures/draw"

// ARCHITECTURE.md names the files of each layer.
var architecture = draw.Picture{
	Name:  "architecture",
	Title: "The layers",
	Alt: "Layers from top to bottom: your program and packages elect, schedule, migrate and the adapters; package lock with the public types; " +
		"internal/engine with trust, renewal, release and events; internal/handoff, which is optional; internal/renewal with batches; " +
		"the contract of package backend; one driver for each service; the service itself.",
	Draw: func(c *draw.Canvas) {
		draw.Stack(c, 16,
			draw.Layer{Kind: draw.Plain, Boxes: []string{"your program", "elect, schedule, migrate", "adapters"}, Below: "a name, a context"},
			draw.Layer{Kind: draw.Accent, Boxes: []string{"lock: Client, Mutex, RWMutex, Semaphore, Lease, Do, All"}, Below: "a request with an owner id"},
			draw.Layer{Kind: draw.Accent, Boxes: []string{"internal/engine: trust, renewal, release, events, cleanup"}},
			draw.Layer{Kind: draw.Dim, Boxes: []string{"internal/handoff: requests of one process share a grant (optional)"}},
			draw.Layer{Kind: draw.Accent, Boxes: []string{"internal/renewal: many renewals in one request"}, Below: "the contract: package backend"},
			draw.Layer{Kind: draw.Good, Boxes: []string{"memlock, filelock, s3lock", "redislock, redlock, memcachelock, natslock", "pglock, mysqllock, etcdlock, zklock"}, Below: "the protocol of the service"},
			draw.Layer{Kind: draw.Plain, Boxes: []string{"one process, one machine, S3", "Redis, Valkey, Memcached, NATS", "PostgreSQL, MySQL, MariaDB, etcd, ZooKeeper"}},
		)
	},
}
