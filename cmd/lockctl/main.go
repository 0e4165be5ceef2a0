// Lockctl runs commands under a distributed lock, and shows and breaks locks.
//
//	lockctl run nightly -- backup.sh
//	lockctl run --url redis://localhost:6379/0 --wait 10s nightly -- backup.sh
//	lockctl top
//
// The URL of the service is that of --url or LOCK_URL. The default is a directory of
// the user, for the processes of this machine. "lockctl help" describes the commands,
// which are in package lockcmd.
package main

import (
	_ "github.com/interlock-go/lock/etcdlock"
	_ "github.com/interlock-go/lock/filelock"
	"github.com/interlock-go/lock/lockcmd"
	_ "github.com/interlock-go/lock/memcachelock"
	_ "github.com/interlock-go/lock/memlock"
	"github.com/interlock-go/lock/mysqllock"
	_ "github.com/interlock-go/lock/natslock"
	"github.com/interlock-go/lock/pglock"
	_ "github.com/interlock-go/lock/redislock"
	_ "github.com/interlock-go/lock/redislock/redlock"
	_ "github.com/interlock-go/lock/s3lock"
	_ "github.com/interlock-go/lock/zklock"
)

func program() lockcmd.Program {
	postgres := lockcmd.Schema{Table: pglock.DefaultTable, SQL: pglock.Schema}
	mysql := lockcmd.Schema{Table: mysqllock.DefaultTable, SQL: mysqllock.Schema}
	return lockcmd.Program{
		Schemas: map[string]lockcmd.Schema{
			"postgres": postgres, "postgresql": postgres,
			"mysql": mysql, "mariadb": mysql,
		},
		SetLogger: setRedisLogger,
	}
}

func main() { program().Main() }
