// Services is the program examples/counter with the drivers of all backends.
package main

import (
	_ "github.com/interlock-go/lock/etcdlock"
	"github.com/interlock-go/lock/examples/counter/app"
	_ "github.com/interlock-go/lock/filelock"
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

func main() { app.Main() }
