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

// killStuck ends each connection of the driver that executes such a statement, as
// soon as there is one, and returns how many.
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

// TestKilledAtEachStep ends the connection while the server executes each statement
// of the protocol that changes something: it is stopped in it by a transaction that
// has the row. Afterwards the row tells who holds, the
// driver does not say otherwise, and the next one gets the lock.
func TestKilledAtEachStep(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin, url := withApp(t, s)
		if _, err := suite.Open(t.Context(), url); err != nil {
			t.Fatal(err)
		}
		n := 0
		// owner is who holds by the row.
		owner := func() string {
			var o string
			if err := admin.QueryRow("SELECT IF(expires>1000000*UNIX_TIMESTAMP(),owner,'') FROM interlock").Scan(&o); err != nil {
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
			{"break", "UPDATE", true, func(ctx context.Context, b backend.Backend, _ backend.Grant, req backend.Request) error {
				_, err := b.(backend.Breaker).Break(ctx, req.Key)
				return err
			}},
		} {
			n++
			b, err := suite.Open(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			req := request(n)
			g, err := b.TryAcquire(t.Context(), req) // a row and an anchor are there
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
			if _, err := tx.Exec("UPDATE interlock SET step=step+1"); err != nil {
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
				t.Errorf("%s: want the row as it was (held by it: %v), the owner is %q", step.name, step.held, owner())
			}
			if err := b.Abandon(t.Context(), req); err != nil {
				t.Errorf("%s: Abandon: %v", step.name, err)
			}
			if o := owner(); o != "" {
				t.Errorf("%s: want nobody to hold, got %s", step.name, o)
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

// TestKilledWhileWaiting ends the connection that waits again and again, and then
// releases: a lost bell costs a look, not the turn.
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

// TestTooManyConnections has none left for those who would wait.
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
		for i, ch := range got {
			if err := l.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			l = granted(t, fmt.Sprint("waiter ", i), ch)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestBellFillsServer has a limit that the bell's own connections reach, one that
// announces and one that waits. Whatever else is asked finds a way, renewals too,
// and the bell comes back.
func TestBellFillsServer(t *testing.T) {
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
			eventually(t, "the bell, on all connections that there may be", func() bool {
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
			t.Errorf("what was renewed all the time: %v", err)
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
