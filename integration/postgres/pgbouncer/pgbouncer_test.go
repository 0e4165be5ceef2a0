package pgbouncer_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/pglock"
)

// TestConformance does not configure the pooler: the driver recognizes it.
func TestConformance(t *testing.T) {
	s := provision.NewPostgres(t, provision.Postgres15, provision.PostgresUnsynced)
	front := provision.NewPgBouncer(t, s)
	h := pgtest.Harness(t, s, front, pgtest.Admin(t, s), nil)
	h.Name = "postgres behind PgBouncer"
	h.Budget = pgtest.Polling
	h.OwnGoroutines = suite.OwnGoroutines
	h.ClockWorker = provision.ClockWorker(t, conformance.Self(pgtest.With(front, nil)))
	conformance.Run(t, h, conformance.RequireHooks(), suite.Keep(t),
		conformance.Except("exclusion/02-foreign-holder", "only this driver writes the table"),
		conformance.Except("shared/43-foreign-holder", "only this driver writes the table"))
}

// TestConformanceListening has the address of the server for the listening connection.
func TestConformanceListening(t *testing.T) {
	s := provision.NewPostgres(t, provision.Postgres15, provision.PostgresUnsynced)
	front := provision.NewPgBouncer(t, s)
	h := pgtest.Harness(t, s, front, pgtest.Admin(t, s), map[string]string{"listen": s.Addr()})
	h.Name = "postgres behind PgBouncer, listening"
	conformance.Run(t, h, conformance.Only(pgtest.Some+"|^waiting/1[13]|^capabilities"))
}

// TestRecognized: the driver finds out at opening how waiters wake, and declares it.
func TestRecognized(t *testing.T) {
	s := provision.NewPostgres(t, provision.Postgres15)
	transaction, session := provision.NewPgBouncer(t, s), provision.NewPgBouncer(t, s, "pool_mode=session")
	other := provision.NewPostgres(t, provision.Postgres15)
	for name, c := range map[string]struct {
		front  *provision.Server
		listen string
		wake   backend.Wake
	}{
		"none":                    {s, "true", backend.WakePush},
		"transaction":             {transaction, "true", backend.WakePoll},
		"transaction, configured": {transaction, "false", backend.WakePoll},
		"transaction, direct":     {transaction, s.Addr(), backend.WakePush},
		"session":                 {session, "true", backend.WakePush},
		"none, but direct":        {s, s.Addr(), backend.WakePush},
		"direct but another":      {transaction, other.Addr(), 0},
		"direct but the pooler":   {transaction, transaction.Addr(), 0},
		"direct but refused":      {transaction, "127.0.0.1:1", 0},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := suite.Open(t.Context(), pgtest.With(c.front, nil, "listen", c.listen))
			if c.wake == 0 {
				if err == nil || !strings.Contains(err.Error(), c.listen) {
					t.Errorf("want an error that names %s, got %v", c.listen, err)
				}
				if err == nil {
					_ = b.Close(t.Context())
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := b.Capabilities().Wake; got != c.wake {
				t.Errorf("wake: want %v, got %v", c.wake, got)
			}
			client, err := lock.New(b)
			if err != nil {
				t.Fatal(err)
			}
			handOver(t, client)
		})
	}
}

// TestListenAlways: behind a pooler in transaction mode a process can listen always at the
// server itself only.
func TestListenAlways(t *testing.T) {
	s := provision.NewPostgres(t, provision.Postgres15)
	front := provision.NewPgBouncer(t, s)
	if b, err := suite.Open(t.Context(), pgtest.With(front, nil, "listen_always", "true")); err == nil {
		_ = b.Close(t.Context())
		t.Error("without the address of the server: want an error, got nil")
	} else if !strings.Contains(err.Error(), "set listen to the address") {
		t.Errorf("want an error that names the parameter listen, got %v", err)
	}
	b, err := suite.Open(t.Context(), pgtest.With(front, nil, "listen_always", "true", "listen", s.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close(t.Context())
	if !b.Capabilities().PushesLoss {
		t.Error("at the server itself: want PushesLoss")
	}
}

// TestPoolerComesBetween: notifications arrive at opening but not later. Waiters poll
// from then on.
func TestPoolerComesBetween(t *testing.T) {
	s := provision.NewPostgres(t, provision.Postgres15)
	session, transaction := provision.NewPgBouncer(t, s, "pool_mode=session"), provision.NewPgBouncer(t, s)
	route := &route{to: session.Addr()}
	cfg, err := pgxpool.ParseConfig(pgtest.With(session, nil))
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.DialFunc = route.dial
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	b, err := pglock.New(pool)
	if err != nil {
		t.Fatal(err)
	}
	if wake := b.Capabilities().Wake; wake != backend.WakePush {
		t.Fatalf("wake through a pooler in session mode: want push, got %v", wake)
	}
	waits := make(chan struct{}, 1)
	c, err := lock.New(b, lock.WithTTL(5*time.Minute), lock.WithObserver(&lock.Observer{
		Waiting: func(context.Context, lock.Event) { waits <- struct{}{} },
	}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	other, err := lock.Open(ctx, pgtest.With(s, nil), lock.WithTTL(5*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(ctx)
	for _, when := range []string{"during the wait", "before"} {
		l, err := other.Mutex("k").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		next := make(chan error, 1)
		go func() {
			l, err := c.Mutex("k").Lock(ctx)
			if err == nil {
				err = l.Unlock(ctx)
			}
			next <- err
		}()
		<-waits
		if when != "before" {
			route.move(transaction.Addr())
		}
		if err := l.Unlock(ctx); err != nil {
			t.Error(err)
		}
		if err := <-next; err != nil {
			t.Errorf("moved %s: %v", when, err)
		}
	}
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
}

// route dials the address that move has set.
type route struct {
	mu    sync.Mutex
	to    string
	conns []net.Conn
}

func (r *route) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := new(net.Dialer).DialContext(ctx, network, r.to)
	if err == nil {
		r.conns = append(r.conns, c)
	}
	return c, err
}

// move ends all connections and sets the address of the next ones.
func (r *route) move(to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
	for _, c := range r.conns {
		_ = c.Close()
	}
}

// handOver waits for a lock, hands it over, and closes the client.
func handOver(t *testing.T, c *lock.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	l, err := c.Mutex("k").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan error, 1)
	go func() {
		l, err := c.Mutex("k").Lock(ctx)
		if err == nil {
			err = l.Unlock(ctx)
		}
		next <- err
	}()
	for {
		info, err := c.Inspect(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		if len(info.Waiters) > 0 {
			break
		}
	}
	if err := l.Unlock(ctx); err != nil {
		t.Error(err)
	}
	if err := <-next; err != nil {
		t.Error(err)
	}
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
}
