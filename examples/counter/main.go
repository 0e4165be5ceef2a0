// Counter shows what a lock is for. Several processes increment a number in a file: each reads it, adds one and writes it
// back. Without a lock increments overwrite each other; with a lock none is lost.
//
//	go run ./examples/counter -no-lock    # updates are lost
//	go run ./examples/counter             # none is, with a lock in files
//
// With -url mem://counter the workers are goroutines of one process. The program in services has the same with a lock of
// any backend: the URL selects it, on the command line or in a configuration.
//
//	go run ./examples/counter/services -url redis://localhost:6379/0
//	go run ./examples/counter/services -config counter.json    # {"url": "etcd://localhost:2379", "ttl": "10s"}
//
// With -oversell two buyers want 60 each of a stock of 100. Without a lock the stock may seem sufficient to both.
//
//	go run ./examples/counter -oversell -no-lock -lockstep
package main

import (
	"github.com/interlock-go/lock/examples/counter/app"
	_ "github.com/interlock-go/lock/filelock"
	_ "github.com/interlock-go/lock/memlock"
)

func main() { app.Main() }
