// Command worker is a process that executes commands of the conformance suite, built
// apart from the tests so that it can be built with a wrong clock; see package
// provision, ClockWorker.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/interlock-go/lock/conformance"
	_ "github.com/interlock-go/lock/etcdlock"
	_ "github.com/interlock-go/lock/filelock"
	"github.com/interlock-go/lock/integration/faults/workload"
	_ "github.com/interlock-go/lock/memcachelock"
	_ "github.com/interlock-go/lock/mysqllock"
	_ "github.com/interlock-go/lock/natslock"
	_ "github.com/interlock-go/lock/pglock"
	_ "github.com/interlock-go/lock/redislock"
	_ "github.com/interlock-go/lock/redislock/redlock"
	_ "github.com/interlock-go/lock/s3lock"
	_ "github.com/interlock-go/lock/zklock"
)

func main() {
	conformance.WorkerMain() // does not return if this is a worker
	workload.Main()          // nor this, if it is a client under faults
	if len(os.Args) == 2 && os.Args[1] == "clock" {
		fmt.Println(time.Now().Unix())
		return
	}
	fmt.Fprintln(os.Stderr, "worker: to be started by the conformance suite")
	os.Exit(2)
}
