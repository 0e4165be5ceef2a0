// Lockctl runs commands under a distributed lock, and shows and breaks locks.
//
//	lockctl run nightly -- backup.sh
//	lockctl run --url redis://localhost:6379/0 --wait 10s nightly -- backup.sh
//	lockctl top
//
// Which service keeps the locks is said by a URL, in --url or in LOCK_URL.
// Without one it is a folder of the user, which excludes the processes of this
// machine. "lockctl help" tells the rest; the exit codes are in exit.go.
package main

import (
	"context"
	"os"

	"github.com/interlock-go/lock/conformance"

	// the drivers that lockctl speaks
	_ "github.com/interlock-go/lock/etcdlock"
	_ "github.com/interlock-go/lock/filelock"
	_ "github.com/interlock-go/lock/memlock"
	_ "github.com/interlock-go/lock/mysqllock"
	_ "github.com/interlock-go/lock/pglock"
	_ "github.com/interlock-go/lock/redislock"
	_ "github.com/interlock-go/lock/zklock"
)

func main() {
	conformance.WorkerMain() // a process that "lockctl conformance" has started
	os.Exit(execute(context.Background(), os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}))
}
