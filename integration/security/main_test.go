package security_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/integration/provision"

	_ "github.com/interlock-go/lock/etcdlock"
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

// TestMain also searches what the client libraries log by themselves.
func TestMain(m *testing.M) {
	var out output
	goredis.SetLogger(&out)
	if err := mysql.SetLogger(log.New(&out, "", 0)); err != nil {
		panic(err)
	}
	code := provision.Run(m)
	if bytes.Contains(out.b.Bytes(), []byte(provision.Secret)) {
		fmt.Println("a client library logged a password")
		code = 1
	}
	os.Exit(code)
}

type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) Printf(_ context.Context, format string, v ...any) {
	_, _ = fmt.Fprintf(o, format+"\n", v...)
}
