package pglock

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock/backend"
)

// A server that does not reply has one connection of a pool to open.
func TestConnectionsOpenOneByOne(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 3)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	u, err := backend.ParseURL("postgres://u@" + l.Addr().String() + "/db?sslmode=disable&pool_size=3&dial_timeout=1h")
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := parse(u)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		go func() { _, _ = pool.Acquire(t.Context()) }()
	}
	for pool.Stat().ConstructingConns() < 3 {
		time.Sleep(time.Millisecond)
	}
	defer (<-accepted).Close()
	select {
	case c := <-accepted:
		c.Close()
		t.Error("two connections open at once")
	case <-time.After(10 * time.Millisecond): // a second one would have come with the first
	}
	pool.Close()
}

// The next connection opens when the one before is open, or has failed. One that waits ends with its context.
func TestOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := make(opening, 1)
		begun := 0
		start := func(ctx context.Context) context.Context {
			ctx = o.TraceConnectStart(ctx, pgx.TraceConnectStartData{})
			begun++
			return ctx
		}
		first := start(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		go func() { o.TraceConnectEnd(start(ctx), pgx.TraceConnectEndData{}) }()
		synctest.Wait()
		if begun != 1 {
			t.Error("the second does not wait")
		}
		cancel()
		synctest.Wait()
		go start(t.Context())
		synctest.Wait()
		if begun != 2 {
			t.Errorf("%d have begun, want the first, and the second that has ended", begun)
		}
		o.TraceConnectEnd(first, pgx.TraceConnectEndData{})
		synctest.Wait()
		if begun != 3 {
			t.Error("the third waits")
		}
	})
}
