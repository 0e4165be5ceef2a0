package mysql_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/mysqllock"
)

// TestStaleConnectionsOfTheApplication: all connections of an application's pool fall silent and new ones work. The lease
// is kept, and a new Lock takes at most two requests.
func TestStaleConnectionsOfTheApplication(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		p := provision.NewProxy(t, s.Addr())
		db := provision.MySQLPool(t, s, func(c *mysql.Config) { c.Addr = p.Addr() })
		const conns = 30
		db.SetMaxOpenConns(conns)
		db.SetMaxIdleConns(conns)
		c := over(t, db, mysqllock.WithTimeout(2*time.Second))
		held, err := c.Mutex("held").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fill := func(n int) {
			var all sync.WaitGroup
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			for range n {
				all.Go(func() {
					if _, err := db.ExecContext(ctx, "DO SLEEP(0.5)"); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		}
		fill(conns - 2) // those beside are for events
		if idle := db.Stats().Idle; idle < 20 {
			t.Fatalf("%d idle connections, want 20 or more", idle)
		}
		p.SilenceOpen()
		begun := time.Now()
		soon, cancel := context.WithTimeout(t.Context(), 15*time.Second) // far less than all of them take, one by one
		defer cancel()
		for try := 1; ; try++ {
			l, err := c.Mutex("new").Lock(soon)
			if err == nil {
				t.Logf("a new Lock after %v", time.Since(begun))
				if err := l.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
				break
			}
			if try == 2 {
				t.Fatalf("the second Lock after all connections fell silent: want a grant, got %v", err)
			}
		}
		if err := held.Check(t.Context()); err != nil {
			t.Errorf("the lease that was held: %v", err)
		}
		fill(db.Stats().Idle) // no other request meets one that is silent
		if err := held.Unlock(t.Context()); err != nil {
			t.Errorf("its Unlock: %v", err)
		}
	})
}
