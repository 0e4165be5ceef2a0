// Lockbench measures and checks the services of locks.
//
//	lockbench bench --url redis://localhost:6379/15 --url etcd://localhost:2379
//	lockbench conformance --url redis://localhost:6379/15
//	lockbench demo
//
// It has a module of its own, apart from lockctl, because it needs libraries for
// histograms, plots and network delays.
package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/conformance"
	_ "github.com/interlock-go/lock/etcdlock"
	_ "github.com/interlock-go/lock/filelock"
	"github.com/interlock-go/lock/lockcmd"
	_ "github.com/interlock-go/lock/memcachelock"
	_ "github.com/interlock-go/lock/memlock"
	_ "github.com/interlock-go/lock/mysqllock"
	_ "github.com/interlock-go/lock/natslock"
	_ "github.com/interlock-go/lock/pglock"
	_ "github.com/interlock-go/lock/redislock"
	_ "github.com/interlock-go/lock/redislock/redlock"
	_ "github.com/interlock-go/lock/s3lock"
	_ "github.com/interlock-go/lock/zklock"
)

func program() lockcmd.Program {
	return lockcmd.Program{
		Name:  "lockbench",
		Short: "Measure and check the services of distributed locks",
		Long: `lockbench compares services by measurement, checks them against the contract of the
library, and demonstrates what a lock protects.`,
		Example: `  lockbench bench --url redis://localhost:6379/15 --url etcd://localhost:2379
  lockbench conformance --url redis://localhost:6379/15
  lockbench demo`,
		Commands: func(a *lockcmd.App) []*lockcmd.Command {
			return []*lockcmd.Command{benchCommand(a), conformanceCommand(a), demoCommand(a)}
		},
		SetLogger: func(log *slog.Logger) { redis.SetLogger(redisLogger{log}) },
	}
}

func main() {
	conformance.WorkerMain() // returns unless "lockbench conformance" started this process
	program().Main()
}

// redisLogger logs the messages of the Redis client, which by default writes them to
// stderr.
type redisLogger struct{ log *slog.Logger }

func (r redisLogger) Printf(_ context.Context, format string, v ...any) {
	if r.log != nil {
		r.log.Debug("redis client", "message", fmt.Sprintf(format, v...))
	}
}
