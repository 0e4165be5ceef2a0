package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/mysql/mysqltest"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/mysqllock"
)

// contend makes workers acquire and release a few locks. It fails if a lock has two holders
// at once, or if tokens do not rise.
func contend(t *testing.T, clients []*lock.Client, keys, workers, cycles int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	inside := make([]atomic.Int64, keys)
	last := make([]uint64, keys)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			c := clients[w%len(clients)]
			for i := range cycles {
				k := (w + i) % keys
				l, err := c.Mutex(fmt.Sprintf("contended-%d", k)).Lock(ctx)
				if err != nil {
					t.Errorf("worker %d: %v", w, err)
					return
				}
				token, _ := l.Token()
				if inside[k].Add(1) != 1 || token <= last[k] {
					t.Errorf("key %d: two holders, or token %d after %d", k, token, last[k])
				}
				last[k] = token
				inside[k].Add(-1)
				if err := l.Unlock(ctx); err != nil {
					t.Errorf("worker %d: unlock: %v", w, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestDeadlocks executes 1,920 contended operations, and as many of a common naive design: a
// lock inserts a row and an unlock deletes it, with a unique index beside the primary key.
func TestDeadlocks(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin := provision.MySQLPool(t, s, nil)
		clients := []*lock.Client{open(t, s.URL()), open(t, s.URL())}
		before, err := mysqltest.Statements(t.Context(), admin)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		contend(t, clients, 3, 16, 60) // 960 locks and 960 unlocks
		took := time.Since(start)
		after, err := mysqltest.Statements(t.Context(), admin)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("1,920 operations in %v, %.1f statements for each lock and unlock", took.Round(time.Millisecond), float64(after-before)/960)
		mysqltest.NoDeadlocks(t, admin)

		if _, err := admin.Exec("CREATE TABLE naive (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(64) NOT NULL UNIQUE, owner INT NOT NULL) ENGINE=InnoDB"); err != nil {
			t.Fatal(err)
		}
		var deadlocks atomic.Int64
		var wg sync.WaitGroup
		for w := range 16 {
			wg.Go(func() {
				for i := range 60 {
					for _, q := range []string{
						fmt.Sprintf("INSERT IGNORE INTO naive (name, owner) VALUES ('k%d', %d)", (w+i)%3, w),
						fmt.Sprintf("DELETE FROM naive WHERE name='k%d' AND owner=%d", (w+i)%3, w),
					} {
						_, err := admin.Exec(q)
						var e *mysql.MySQLError
						if errors.As(err, &e) && e.Number == 1213 {
							deadlocks.Add(1)
						} else if err != nil {
							t.Errorf("naive: %v", err)
						}
					}
				}
			})
		}
		wg.Wait()
		t.Logf("the naive design: %d deadlocks in 1,920 statements", deadlocks.Load())
	})
}

// TestIsolation runs a short contention at each level, with the caller's own pool.
func TestIsolation(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		variable := "transaction_isolation"
		if s.Flavour == provision.MariaDB10 {
			variable = "tx_isolation"
		}
		for _, level := range []string{"READ-UNCOMMITTED", "READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"} {
			for _, found := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s,clientFoundRows=%v", level, found), func(t *testing.T) {
					db := provision.MySQLPool(t, s, func(c *mysql.Config) {
						c.Params = map[string]string{variable: "'" + level + "'"}
						c.ClientFoundRows, c.ParseTime = found, found
					})
					db.SetMaxOpenConns(8)
					contend(t, []*lock.Client{over(t, db)}, 2, 8, 10)
				})
			}
		}
		mysqltest.NoDeadlocks(t, provision.MySQLPool(t, s, nil))
	})
}

// TestSmallPools uses a pool of one connection, and contends for 200 locks through
// a pool of ten.
func TestSmallPools(t *testing.T) {
	inTurn(t, func(t *testing.T, serve func() *provision.Server) {
		s := serve()
		one := provision.MySQLPool(t, s, nil)
		one.SetMaxOpenConns(1)
		contend(t, []*lock.Client{over(t, one)}, 2, 6, 10)

		ten := provision.MySQLPool(t, s, nil)
		ten.SetMaxOpenConns(10)
		c := over(t, ten, mysqllock.WithTimeout(time.Minute)) // 400 requests at once, perhaps on a busy disk
		start := time.Now()
		contend(t, []*lock.Client{c}, 200, 400, 2)
		t.Logf("400 workers, 200 locks, 10 connections: 800 cycles in %v", time.Since(start).Round(time.Millisecond))
	})
}
