package mysqllock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// failing is a server that refuses each query after a second.
type failing struct{ queries atomic.Int32 }

func (f *failing) Connect(context.Context) (driver.Conn, error) { return failingConn{f: f}, nil }
func (f *failing) Driver() driver.Driver                        { return nil }

type failingConn struct {
	driver.Conn
	f *failing
}

func (c failingConn) Close() error { return nil }

func (c failingConn) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	c.f.queries.Add(1)
	time.Sleep(time.Second)
	return nil, errors.New("refused")
}

// TestLookAfterHandOver: a key is looked at once, when the last grant that was handed over ends. Close
// waits for a look that has begun, and there is none after it.
func TestLookAfterHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server failing
		b := &Backend{db: sql.OpenDB(&server), ownDB: true, opt: defaults(), multiStatements: true,
			table: table{name: "t"}, handedOver: map[string]*time.Timer{}}
		b.life, b.end = context.WithCancel(t.Context())
		want := func(when string, queries int32, keys int) {
			t.Helper()
			synctest.Wait()
			b.mu.Lock()
			defer b.mu.Unlock()
			if n := server.queries.Load(); n != queries || len(b.handedOver) != keys {
				t.Errorf("%s: want %d looks and %d keys to look at, got %d and %d", when, queries, keys, n, len(b.handedOver))
			}
		}
		b.watchHandOver("k")
		time.Sleep(2 * time.Second)
		b.watchHandOver("k")
		time.Sleep(provisionalTTL + watchDelay - time.Nanosecond)
		want("before the last one ends", 0, 1)
		time.Sleep(time.Nanosecond)
		want("when it ends", 1, 0)
		time.Sleep(time.Minute)
		want("later", 1, 0)

		b.watchHandOver("k")
		time.Sleep(provisionalTTL)
		b.watchHandOver("l")
		time.Sleep(watchDelay)
		want("the next one", 2, 1)
		begun := time.Now()
		if err := b.Close(t.Context()); err != nil || time.Since(begun) != time.Second {
			t.Errorf("want Close to wait a second for the look, got %v after %v", err, time.Since(begun))
		}
		b.watchHandOver("m")
		time.Sleep(time.Minute)
		if n := server.queries.Load(); n != 2 {
			t.Errorf("after Close: want no look, got %d", n-2)
		}
	})
}
