package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/pglock"
)

// stage is a server, a backend and a lock. The test changes the row of the lock, so that
// leases expire, clocks are set and processes die at once.
type stage struct {
	*testing.T
	s     *provision.Server
	admin *pgxpool.Pool
	b     *pglock.Backend
	key   string
}

// TestSteps tests the conditions of each statement, one by one.
func TestSteps(t *testing.T) {
	s, admin := server(t)
	b := open(t, pgtest.With(s, nil))
	for name, f := range map[string]func(*stage){
		"another's grant": anothersGrant, "expired grant": expiredGrant, "tokens": tokens, "the queue first": queueFirst,
		"provisional TTL": provisionalTTL, "abandoned": abandonedAttempt, "unanswered": unansweredRequest, "trust": trustFromTheSend,
		"guard": guardConditions, "unclaimed grant": unclaimedGrant, "notifications interrupted": notificationsInterrupted,
		"clock set back": clockSetBack, "two leave at once": twoLeaveAtOnce,
		"cancelled": cancelledWaiter, "release sees the queue": releaseSeesTheQueue, "dead process": deadProcess, "many unclaimed": manyUnclaimed,
		"abandoned meanwhile": abandonedMeanwhile,
	} {
		t.Run(name, func(t *testing.T) {
			f(&stage{t, s, admin, b, strings.ReplaceAll(name, " ", "-")})
		})
	}
}

func (s *stage) row(set string, args ...any) {
	s.Helper()
	tag, err := s.admin.Exec(s.Context(), "UPDATE interlock SET "+set+" WHERE name = $1 AND place = 0", append([]any{[]byte("lock:" + s.key)}, args...)...)
	if err != nil || tag.RowsAffected() != 1 {
		s.Fatalf("set %s: %v, %v", set, tag, err)
	}
}

func (s *stage) try() backend.Grant {
	s.Helper()
	g, err := s.b.TryAcquire(s.Context(), request(s.key, time.Hour))
	must(s, err)
	return g
}

// state returns the owner in the row, expired or not, the queue and the lease.
func (s *stage) state() (owner, queue string, left time.Duration) {
	s.Helper()
	var ms float64
	must(s, s.admin.QueryRow(s.Context(), `SELECT coalesce(owner, ''), coalesce((SELECT string_agg(waiter, ',' ORDER BY place) FROM interlock WHERE name = $1 AND place > l.served), ''),
		coalesce(extract(epoch FROM expires - granted), 0)::float8 * 1000 FROM interlock l WHERE name = $1 AND place = 0`, []byte("lock:"+s.key)).Scan(&owner, &queue, &ms))
	return owner, queue, time.Duration(ms) * time.Millisecond
}

func (s *stage) lost(what string, err error) {
	s.Helper()
	if !errors.Is(err, backend.ErrLost) {
		s.Errorf("%s: want ErrLost, got %v", what, err)
	}
}

// enqueue puts an attempt of another process, which may not exist, into the queue.
func (s *stage) enqueue(process string) backend.Request {
	s.Helper()
	req := request(s.key, time.Hour)
	s.row("last = last + 1")
	_, err := s.admin.Exec(s.Context(), `INSERT INTO interlock (name, place, waiter, process, metadata, granted, ttl)
		SELECT name, last, $2, $3, 'x', now(), $4 FROM interlock WHERE name = $1 AND place = 0`,
		[]byte("lock:"+s.key), req.Owner, fmt.Sprintf("%s %032d", process, 0), req.TTL.Milliseconds())
	must(s, err)
	return req
}

const noProcess = "0000000000000000"

func anothersGrant(s *stage) {
	stale := s.try()
	_, err := s.b.Break(s.Context(), s.key, "")
	must(s, err)
	g := s.try()
	s.lost("Renew of a broken grant", stale.Renew(s.Context(), time.Hour))
	s.lost("Release of a broken grant", stale.Release(s.Context()))
	must(s, g.Renew(s.Context(), time.Hour))
	must(s, g.Release(s.Context()))
}

func expiredGrant(s *stage) {
	g := s.try()
	s.row("expires = clock_timestamp() - interval '1 second'")
	s.lost("Renew of an expired grant", g.Renew(s.Context(), time.Hour))
	s.lost("Release of an expired grant", g.Release(s.Context()))
	next := s.try()
	if _, err := s.b.TryAcquire(s.Context(), request(s.key, time.Hour)); !errors.Is(err, backend.ErrLocked) {
		s.Errorf("a held key: want ErrLocked, got %v", err)
	}
	must(s, next.Release(s.Context()))
}

func tokens(s *stage) {
	last := uint64(0)
	rises := func(what string, token uint64) {
		s.Helper()
		if token <= last {
			s.Errorf("%s: token %d after %d", what, token, last)
		}
		last = token
	}
	next := func(what string) {
		s.Helper()
		g := s.try()
		rises(what, g.Token())
		must(s, g.Release(s.Context()))
	}
	next("the first")
	next("the second")
	s.row("token = token + 3600000000")
	last += 3600e6
	next("an hour ahead of the clock")
	g := s.try()
	rises("again", g.Token())
	got := waitFor(s, s.b, request(s.key, time.Hour))
	must(s, g.Release(s.Context()))
	o := <-got
	must(s, o.err)
	rises("handed over ahead of the clock", o.g.Token())
	must(s, o.g.Release(s.Context()))
	last -= 3600e6 // what a client saw before the row's token was raised
	sql(s.T, s.admin, "DELETE FROM interlock WHERE name = 'lock:tokens'")
	next("a row that was lost")
}

func queueFirst(s *stage) {
	s.try()
	first := s.enqueue(noProcess)
	s.row("expires = clock_timestamp() - interval '1 second'")
	if _, err := s.b.TryAcquire(s.Context(), request(s.key, time.Hour)); !errors.Is(err, backend.ErrLocked) {
		s.Errorf("TryAcquire of a free key with a queue: want ErrLocked, got %v", err)
	}
	if owner, queue, _ := s.state(); owner != first.Owner || queue != "" {
		s.Errorf("want the key granted to the first waiter, got %q, and %q in the queue", owner, queue)
	}
}

func provisionalTTL(s *stage) {
	g := s.try()
	next := s.enqueue(noProcess)
	must(s, g.Release(s.Context()))
	if owner, _, left := s.state(); owner != next.Owner || left > 3*time.Second {
		s.Errorf("a hand-over: want it granted to %s for 3s, got %s for %v", next.Owner, owner, left)
	}
}

func abandonedAttempt(s *stage) {
	g := s.try()
	waits := s.enqueue(noProcess)
	must(s, s.b.Abandon(s.Context(), waits))
	if _, queue, _ := s.state(); queue != "" {
		s.Errorf("want an empty queue, got %q", queue)
	}
	if _, err := s.b.TryAcquire(s.Context(), waits); !errors.Is(err, backend.ErrInvalid) {
		s.Errorf("a late request of an abandoned attempt, held key: want ErrInvalid, got %v", err)
	}
	must(s, g.Release(s.Context()))
	if _, err := s.b.TryAcquire(s.Context(), waits); !errors.Is(err, backend.ErrInvalid) {
		s.Errorf("a late request of an abandoned attempt: want ErrInvalid, got %v", err)
	}
	if owner, _, _ := s.state(); owner != "" {
		s.Errorf("a late request of an abandoned attempt: want no holder, got %s", owner)
	}
}

// behindProxy opens a backend behind a proxy.
func (s *stage) behindProxy() (*pglock.Backend, *provision.Proxy) {
	p := provision.NewProxy(s, s.s.Addr())
	return open(s, strings.Replace(pgtest.With(s.s, nil), s.s.Addr(), p.Addr(), 1)), p
}

// unansweredRequest loses the reply to a request to wait in the queue. After Abandon the
// server refuses the request, which could also be late.
func unansweredRequest(s *stage) {
	b, p := s.behindProxy()
	req := request(s.key, time.Hour)
	p.DropReply(func(request []byte) bool { return bytes.Contains(request, []byte(req.Owner)) })
	if _, err := b.Acquire(s.Context(), req); !errors.Is(err, backend.ErrUncertain) {
		s.Fatalf("a request whose reply was lost: want ErrUncertain, got %v", err)
	}
	must(s, b.Abandon(s.Context(), req))
	if _, err := s.b.TryAcquire(s.Context(), req); !errors.Is(err, backend.ErrInvalid) {
		s.Errorf("an unanswered request, executed after Abandon: want ErrInvalid, got %v", err)
	}
}

func trustFromTheSend(s *stage) {
	b, p := s.behindProxy()
	const oneWay, ttl = 300 * time.Millisecond, time.Hour
	must(s, b.Ping(s.Context())) // a connection is open
	p.Delay(oneWay)
	defer p.Delay(0)
	check := func(what string, g backend.Grant) {
		s.Helper()
		until := g.Until()
		if most := time.Now().Add(ttl - 2*oneWay); until.After(most) {
			s.Errorf("%s over a link of %v each way: it is trusted for %v too long", what, oneWay, until.Sub(most))
		}
	}
	g, err := b.TryAcquire(s.Context(), request(s.key, ttl))
	must(s, err)
	check("a grant", g)
	must(s, g.Renew(s.Context(), ttl))
	check("a renewal", g)
}

func guardConditions(s *stage) {
	req := request(s.key, time.Hour)
	g, err := s.b.TryAcquire(s.Context(), req)
	must(s, err)
	guard := func(owner string, token uint64, within func()) error {
		tx, err := s.admin.Begin(s.Context())
		must(s, err)
		defer func() { _ = tx.Rollback(context.Background()) }()
		if err := s.b.Guard(s.Context(), tx, s.key, owner, token); err != nil {
			return err
		}
		within()
		return nil
	}
	if err := guard(req.Owner, g.Token(), func() {
		_, err := s.admin.Exec(s.Context(), "SELECT FROM interlock WHERE name = $1 AND place = 0 FOR UPDATE NOWAIT", []byte("lock:"+s.key))
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "55P03" {
			s.Errorf("the row within a guarded transaction: want it locked, got %v", err)
		}
	}); err != nil {
		s.Errorf("the holder: %v", err)
	}
	s.lost("another token", guard(req.Owner, g.Token()+1, func() {}))
	s.lost("another owner", guard(request("", 0).Owner, g.Token(), func() {}))
	s.row("expires = clock_timestamp() - interval '1 second'")
	s.lost("an expired grant", guard(req.Owner, g.Token(), func() {}))
}

// unclaimedGrant hands the lock over to an attempt that its process does not know.
func unclaimedGrant(s *stage) {
	g := s.try()
	got := waitFor(s, s.b, request(s.key, time.Hour)) // the process listens from now on
	must(s, g.Release(s.Context()))
	o := <-got
	must(s, o.err)
	var process string
	must(s, s.admin.QueryRow(s.Context(), "SELECT left(process, 16) FROM interlock WHERE name = $1 AND place = 0", []byte("lock:"+s.key)).Scan(&process))
	s.enqueue(process)
	must(s, o.g.Release(s.Context()))
	must(s, eventually(func() error {
		if owner, _, _ := s.state(); owner != "" {
			return fmt.Errorf("still held by the unknown attempt %s", owner)
		}
		return nil
	}))
}

// notificationsInterrupted releases a lock after the listening connection was lost and
// before the next one listens. The waiter gets the lock, and both events are reported.
func notificationsInterrupted(s *stage) {
	p := provision.NewProxy(s, s.s.Addr())
	b := open(s, pgtest.With(s.s, nil, "listen", p.Addr()))
	reports := make(chan error, 10)
	b.ReportStatus(func(_ string, err error) { reports <- err })
	g := s.try()
	got := waitFor(s, b, request(s.key, time.Hour))
	p.Stall()
	p.ResetPeer()
	must(s, eventually(func() error {
		// pgx connects first to cancel the statement of the broken connection
		if n := p.Connections(); n < 2 {
			return fmt.Errorf("%d connections, want it to connect again", n)
		}
		return nil
	}))
	must(s, g.Release(s.Context()))
	must(s, p.Heal())
	s.granted(got)
	for _, failed := range []bool{true, false} {
		select {
		case err := <-reports:
			if (err != nil) != failed {
				s.Errorf("report: want an error: %v, got %v", failed, err)
			}
		case <-time.After(20 * time.Second):
			s.Fatalf("no report within 20 s; want one with an error: %v", failed)
		}
	}
}

// clockSetBack notifies the first waiter of a lease by a clock that is an hour ahead of
// the clock of the next reply. The waiter must poll when that lease ends.
func clockSetBack(s *stage) {
	s.try()
	req := request(s.key, time.Hour)
	got := waitFor(s, s.b, req)
	s.row("expires = clock_timestamp() + interval '2 seconds'") // it is not renewed
	_, err := s.admin.Exec(s.Context(), `SELECT pg_notify('interlock_' || left(process, 16),
		'h ' || $2 || ' ' || ((extract(epoch FROM clock_timestamp()) + 3600) * 1000000)::bigint || ' 100000') FROM interlock WHERE name = $1 AND waiter = $2`,
		[]byte("lock:"+s.key), req.Owner)
	must(s, err)
	s.granted(got)
}

// twoLeaveAtOnce abandons the first two waiters, the second while its statement waits for
// the row that the first one has locked. The third waiter must be notified that it is the
// first, and when the lease ends.
func twoLeaveAtOnce(s *stage) {
	s.try()
	first := s.enqueue(noProcess)
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	second, waits, left := request(s.key, time.Hour), make(chan struct{}, 1), make(chan error, 1)
	second.OnWait = func(*backend.LockedError) { waits <- struct{}{} }
	go func() { _, err := s.b.Acquire(ctx, second); left <- err }()
	select {
	case <-waits:
	case <-time.After(20 * time.Second):
		s.Fatal("want it to wait within 20 s")
	}
	got := waitFor(s, s.b, request(s.key, time.Hour))
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		s.Fatalf("a cancelled wait: want context.Canceled, got %v", err)
	}
	tx, err := s.admin.Begin(s.Context())
	must(s, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(s.Context(), "UPDATE interlock SET expires = clock_timestamp() + interval '2 seconds' WHERE name = $1 AND place = 0", []byte("lock:"+s.key))
	must(s, err)
	_, err = tx.Exec(s.Context(), "DELETE FROM interlock WHERE waiter = $1", first.Owner)
	must(s, err)
	go func() { left <- s.b.Abandon(s.Context(), second) }()
	s.blocked()
	must(s, tx.Commit(s.Context()))
	must(s, <-left)
	s.granted(got)
}

func (s *stage) granted(got <-chan outcome) {
	s.Helper()
	select {
	case o := <-got:
		must(s, o.err)
	case <-time.After(20 * time.Second):
		s.Fatal("the waiter was not granted within 20 s")
	}
}
