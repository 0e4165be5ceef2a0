package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/pglock"
)

// TestRowsDeleted: rows of a lock are deleted by hand, or are not on the server of a failover. The holder loses the
// lock, and its waiters are served, also beside later ones.
func TestRowsDeleted(t *testing.T) {
	s, admin := server(t)
	url := pgtest.With(s, nil, "ttl", "5s")
	writer := func(c *lock.Client, name string) func(context.Context) (*lock.Lease, error) {
		return c.Mutex(name).Lock
	}
	reader := func(c *lock.Client, name string) func(context.Context) (*lock.Lease, error) {
		return c.RWMutex(name).RLock
	}
	for what, tables := range map[string][]string{"all": {"interlock", "interlock_places"}, "that of the lock": {"interlock"}, "those of the waiters": {"interlock_places"}} {
		for kind, request := range map[string]func(*lock.Client, string) func(context.Context) (*lock.Lease, error){"writers": writer, "readers": reader} {
			t.Run(what+"/"+kind, func(t *testing.T) {
				t.Parallel()
				a, b, c := clientOf(t, url), clientOf(t, url), clientOf(t, url)
				name := what + "/" + kind
				held, err := a.Mutex(name).Lock(t.Context())
				must(t, err)
				got := make(chan *lock.Lease, 4)
				wait := func(c *lock.Client, request func(context.Context) (*lock.Lease, error), place int) {
					go func() {
						l, err := request(t.Context())
						if err != nil {
							t.Errorf("a waiter: %v", err)
						}
						got <- l
					}()
					must(t, eventually(func() error { return waits(t.Context(), c, name, place) }))
				}
				wait(b, request(b, name), 1)
				wait(c, request(c, name), 2)
				for _, table := range tables {
					_, err = admin.Exec(t.Context(), "DELETE FROM "+table+" WHERE name = $1", pglock.Key(pglock.DefaultPrefix, name))
					must(t, err)
				}
				_ = held.Check(t.Context()) // it finds out that it has lost the lock
				_ = held.Unlock(t.Context())
				wait(a, request(a, name), 0)
				wait(b, writer(b, name), 0)
				for i := range 4 { // in any order
					select {
					case l := <-got:
						if l == nil {
							t.FailNow()
						}
						must(t, l.Unlock(t.Context()))
					case <-time.After(20 * time.Second):
						t.Fatalf("grant %d: not within 20 s", i+1)
					}
				}
			})
		}
	}
}

// clientOf opens a client by URL.
func clientOf(t *testing.T, url string) *lock.Client {
	t.Helper()
	c, err := lock.Open(t.Context(), url)
	must(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// waits returns nil if the lock has that many waiters.
func waits(ctx context.Context, c *lock.Client, name string, least int) error {
	info, err := c.Inspect(ctx, name)
	if err == nil && len(info.Waiters) < least {
		err = fmt.Errorf("%d waiters, want %d", len(info.Waiters), least)
	}
	return err
}
