package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/mysqllock"
)

// TestSlowServer: a connection whose reply is late stays if the server is slow, and is replaced if it is silent.
func TestSlowServer(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		const acquiring = 3 // of 4 connections
		proxy := provision.NewProxy(t, s.Addr())
		var dialed atomic.Int32
		db := provision.MySQLPool(t, s, func(c *mysql.Config) {
			c.Addr = proxy.Addr()
			c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
				dialed.Add(1)
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
		})
		db.SetMaxOpenConns(acquiring + 1)
		db.SetMaxIdleConns(acquiring + 1)
		b, _ := backendOver(t, db, mysqllock.WithNotify(false), mysqllock.WithTimeout(300*time.Millisecond))
		dial(t, db, acquiring)
		ask := func(want string) {
			t.Helper()
			var all sync.WaitGroup
			for i := range acquiring {
				all.Go(func() {
					g, err := b.TryAcquire(t.Context(), request(fmt.Sprintf("%s-%d-%d", want, dialed.Load(), i), time.Hour))
					if err == nil {
						err = g.Release(t.Context())
					}
					if got := fmt.Sprint(err); !strings.Contains(got, want) {
						t.Errorf("want %q, got %v", want, got)
					}
				})
				if want != "nil" { // each occupies a connection: they do not share a request
					eventually(t, "it is sent", func() bool { return db.Stats().InUse > i })
				}
			}
			all.Wait()
		}
		ask("nil")
		before := dialed.Load()

		proxy.Stall()
		ask("no answer within 300ms")
		eventually(t, "another connection is tried", func() bool { return dialed.Load() == before+1 })
		eventually(t, "it has no answer", func() bool { return db.Stats().OpenConnections == acquiring })
		if err := proxy.Heal(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the replies are there", func() bool { return db.Stats().InUse == 0 })
		ask("nil")
		if n := dialed.Load() - before; n != 1 {
			t.Errorf("a server that replied late: want no new connection but the one that was tried, got %d", n)
		}

		proxy.SilenceOpen()
		silent := time.Now()
		ask("no answer within 300ms")
		eventually(t, "the silent connections are closed", func() bool { return db.Stats().OpenConnections <= 1 })
		if d := time.Since(silent); d > 10*time.Second { // 12 s if no other connection is tried
			t.Errorf("the silent connections were closed after %v", d)
		}
		dial(t, db, acquiring)
		ask("nil")
	})
}

// dial opens connections of a pool.
func dial(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	for range n {
		c, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
}
