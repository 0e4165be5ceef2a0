package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/mysql/mysqltest"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

func request(n int) backend.Request {
	return backend.Request{Key: "step", Owner: fmt.Sprintf("%032x", n), TTL: 5 * time.Minute}
}

// killStuck waits until a connection of the driver executes such a statement, ends all that
// do, and returns their number.
func killStuck(t *testing.T, admin *sql.DB, statement string) int {
	t.Helper()
	n := 0
	eventually(t, "a connection that executes "+statement, func() bool {
		for _, th := range threads(t, admin, "app") {
			if strings.HasPrefix(th.query, statement) {
				_, err := admin.Exec(fmt.Sprintf("KILL %d", th.id))
				var e *mysql.MySQLError
				if err != nil && (!errors.As(err, &e) || e.Number != 1094) {
					t.Fatal(err)
				}
				n++
			}
		}
		return n > 0
	})
	return n
}

// TestKilledAtEachStep ends the connection while the server executes a statement, for each
// statement of the protocol that changes a row: a transaction that has locked the row stops
// it. Afterwards the row decides, the driver agrees with it, and the next attempt gets the
// lock.
func TestKilledAtEachStep(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin, url := withApp(t, s)
		if _, err := suite.Open(t.Context(), url); err != nil {
			t.Fatal(err)
		}
		n := 0
		// owner returns the holder in the row.
		owner := func() string {
			var o string
			if err := admin.QueryRow("SELECT IF(expires>1000000*UNIX_TIMESTAMP(),owner,'') FROM interlock WHERE place=0 AND name<>''").Scan(&o); err != nil {
				t.Fatal(err)
			}
			return o
		}
		for _, step := range []struct {
			name, statement string
			held            bool // by the attempt, before
			do              func(ctx context.Context, b backend.Backend, g backend.Grant, req backend.Request) error
		}{
			{"try", "INSERT", false, func(ctx context.Context, b backend.Backend, _ backend.Grant, req backend.Request) error {
				_, err := b.TryAcquire(ctx, req)
				return err
			}},
			{"join", "INSERT", false, func(ctx context.Context, b backend.Backend, _ backend.Grant, req backend.Request) error {
				_, err := b.(backend.Waiter).Acquire(ctx, req)
				return err
			}},
			{"renew", "UPDATE", true, func(ctx context.Context, _ backend.Backend, g backend.Grant, _ backend.Request) error {
				return g.Renew(ctx, 5*time.Minute)
			}},
			{"keep", "UPDATE", true, func(ctx context.Context, _ backend.Backend, g backend.Grant, _ backend.Request) error {
				return g.(backend.Keeper).Keep(ctx, time.Minute)
			}},
			{"release", "UPDATE", true, func(ctx context.Context, _ backend.Backend, g backend.Grant, _ backend.Request) error {
				return g.Release(ctx)
			}},
			{"abandon", "INSERT", true, func(ctx context.Context, b backend.Backend, _ backend.Grant, req backend.Request) error {
				return b.Abandon(ctx, req)
			}},
			{"break", "SELECT TIMESTAMPDIFF", true, func(ctx context.Context, b backend.Backend, _ backend.Grant, req backend.Request) error {
				_, err := b.(backend.Breaker).Break(ctx, req.Key, "")
				return err
			}},
		} {
			n++
			b, err := suite.Open(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			req := request(n)
			g, err := b.TryAcquire(t.Context(), req) // the row and a lock connection exist
			if err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
			if !step.held {
				if err := g.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				n++
				req = request(n)
			}
			tx, err := admin.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec("UPDATE interlock SET ttl=ttl+1"); err != nil {
				t.Fatal(err)
			}
			end := make(chan error, 1)
			go func() { end <- step.do(t.Context(), b, g, req) }()
			killStuck(t, admin, step.statement)
			// a statement that is sent again is stopped too, until the transaction ends
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			select {
			case err = <-end:
			case <-time.After(bound):
				t.Fatalf("%s: no answer within %v", step.name, bound)
			}
			if !errors.Is(err, backend.ErrUncertain) {
				t.Errorf("%s: want ErrUncertain of a statement whose connection was killed, got %v", step.name, err)
			}
			if step.held != (owner() == req.Owner) {
				t.Errorf("%s: want the row unchanged (held by the attempt: %v), the owner is %q", step.name, step.held, owner())
			}
			if err := b.Abandon(t.Context(), req); err != nil {
				t.Errorf("%s: Abandon: %v", step.name, err)
			}
			if o := owner(); o != "" {
				t.Errorf("%s: want no holder, got %s", step.name, o)
			}
			n++
			if g, err = b.TryAcquire(t.Context(), request(n)); err != nil {
				t.Errorf("%s: afterwards: %v", step.name, err)
			} else if err := g.Release(t.Context()); err != nil {
				t.Error(err)
			}
			if err := b.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		mysqltest.NoDeadlocks(t, admin)
	})
}

// TestKilledWhileWaiting ends the connection that waits again and again, and then releases
// the lock. The waiter polls and keeps its place.
func TestKilledWhileWaiting(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin, url := withApp(t, s)
		h, c := open(t, url), open(t, url)
		l, err := h.Mutex("k", lock.WithTTL(5*time.Minute)).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := waiting(t, c, "k", 1)
		for range 3 {
			// it waits in the server again a while after it was killed
			eventually(t, "a connection that waits", func() bool { return len(blocked(t, admin, "app")) == 1 })
			killStuck(t, admin, "SELECT")
			select {
			case <-got:
				t.Fatal("granted while another holds")
			default:
			}
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := granted(t, "the waiter", got).Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestTooManyConnections has no connections left that could wait for named locks.
func TestTooManyConnections(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin, _ := withApp(t, s)
		exec(t, admin, "ALTER USER app@'%' WITH MAX_USER_CONNECTIONS 4")
		h := open(t, as(s, "app", "s3cret", map[string]string{"pool_size": "2"}))
		l, err := h.Mutex("k", lock.WithTTL(5*time.Minute)).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c := open(t, as(s, "app", "s3cret", map[string]string{"pool_size": "2"}))
		var got []<-chan *lock.Lease
		for i := range 3 {
			got = append(got, waiting(t, c, "k", i+1))
		}
		unlockInTurn(t, l, got)
	})
}

// TestNotifierFillsServer has a limit of two connections: the lock connection and the one
// that waits reach it. All other requests still succeed, renewals too, and afterwards the
// driver opens a connection that waits again.
func TestNotifierFillsServer(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin, url := withApp(t, s)
		exec(t, admin, "ALTER USER app@'%' WITH MAX_USER_CONNECTIONS 2")
		c := open(t, url)
		l, err := c.Mutex("k", lock.WithTTL(5*time.Minute)).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		renewed, err := c.Mutex("renewed", lock.WithTTL(5*time.Minute)).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := waiting(t, c, "k", 1)
		for round := range 2 {
			eventually(t, "a lock connection and one that waits", func() bool {
				return len(blocked(t, admin, "app")) == 1 && len(threads(t, admin, "app")) == 2
			})
			did := make(chan error)
			for what, f := range map[string]func() error{
				"Inspect": func() error { _, err := c.Inspect(t.Context(), "k"); return err },
				"Extend":  func() error { return l.Extend(t.Context(), 5*time.Minute) },
				"Ping":    func() error { return c.Ping(t.Context()) },
				"Renew":   func() error { return renewed.Check(t.Context()) },
				"Lock and Unlock": func() error {
					other, err := c.Mutex("other").Lock(t.Context())
					if err != nil {
						return err
					}
					return other.Unlock(t.Context())
				},
			} {
				go func() {
					err := f()
					if err != nil {
						err = fmt.Errorf("round %d: %s: %w", round, what, err)
					}
					did <- err
				}()
			}
			for range 5 {
				if err := <-did; err != nil {
					t.Error(err)
				}
			}
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock: %v", err)
		}
		if err := granted(t, "the waiter", got).Unlock(t.Context()); err != nil {
			t.Errorf("its Unlock: %v", err)
		}
		if err := renewed.Unlock(t.Context()); err != nil {
			t.Errorf("the lock that was renewed: %v", err)
		}
	})
}

// TestRestart restarts the server while a lock is held and waited for.
func TestRestart(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin, url := withApp(t, s)
		h, c := open(t, url), open(t, url)
		l, err := h.Mutex("k", lock.WithTTL(2*time.Minute)).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		token, _ := l.Token()
		got := waiting(t, c, "k", 1)
		eventually(t, "a connection that waits", func() bool { return len(blocked(t, admin, "app")) == 1 })
		if err := errors.Join(s.Kill(), s.Restart(t.Context())); err != nil {
			t.Fatal(err)
		}
		if err := l.Check(t.Context()); err != nil {
			t.Errorf("the holder after the restart: %v", err)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Errorf("its unlock: %v", err)
		}
		next := granted(t, "the waiter", got)
		if now, _ := next.Token(); now <= token {
			t.Errorf("token %d after %d", now, token)
		}
		if err := next.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
