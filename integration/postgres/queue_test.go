package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/integration/provision"
)

// cancelledWaiter: each request of the attempt had a reply, so nothing remains of it.
func cancelledWaiter(s *stage) {
	g := s.try()
	ctx, cancel := context.WithCancel(s.Context())
	req := request(s.key, time.Hour)
	req.OnWait = func(*backend.LockedError) { cancel() }
	if _, err := s.b.Acquire(ctx, req); !errors.Is(err, context.Canceled) {
		s.Fatalf("a cancelled wait: want context.Canceled, got %v", err)
	}
	must(s, s.b.Abandon(s.Context(), req))
	var rows int
	must(s, s.admin.QueryRow(s.Context(), "SELECT count(*) FROM interlock WHERE waiter = $1", req.Owner).Scan(&rows))
	if rows != 0 {
		s.Errorf("want no row of the attempt, got %d", rows)
	}
	must(s, g.Release(s.Context()))
}

// releaseSeesTheQueue releases while another transaction enters the queue: the release waits
// for the row, and must see the waiter that came meanwhile.
func releaseSeesTheQueue(s *stage) {
	g := s.try()
	tx, err := s.admin.Begin(s.Context())
	must(s, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(s.Context(), "UPDATE interlock SET last = last + 1 WHERE name = $1 AND place = 0", []byte("lock:"+s.key))
	must(s, err)
	next, released := request(s.key, time.Hour), make(chan error, 1)
	_, err = tx.Exec(s.Context(), "INSERT INTO interlock (name, place, waiter, process, ttl) SELECT name, last, $2, $3, 3600000 FROM interlock WHERE name = $1 AND place = 0",
		[]byte("lock:"+s.key), next.Owner, noProcess+" x")
	must(s, err)
	go func() { released <- g.Release(s.Context()) }()
	s.blocked()
	must(s, tx.Commit(s.Context()))
	must(s, <-released)
	if owner, _, _ := s.state(); owner != next.Owner {
		s.Errorf("want the waiter granted that came during the release, got %q", owner)
	}
}

// abandonedMeanwhile abandons an attempt while its request waits for the row.
func abandonedMeanwhile(s *stage) {
	must(s, s.try().Release(s.Context()))
	req, got := request(s.key, time.Hour), make(chan error, 1)
	tx, err := s.admin.Begin(s.Context())
	must(s, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(s.Context(), "UPDATE interlock SET tombstones = now() + interval '5 minutes' WHERE name = $1 AND place = 0", []byte("lock:"+s.key))
	must(s, err)
	_, err = tx.Exec(s.Context(), "INSERT INTO interlock (name, place, waiter, expires) VALUES ($1, -1, $2, now() + interval '5 minutes')", []byte("lock:"+s.key), req.Owner)
	must(s, err)
	go func() { _, err := s.b.TryAcquire(s.Context(), req); got <- err }()
	s.blocked()
	must(s, tx.Commit(s.Context()))
	if err := <-got; !errors.Is(err, backend.ErrInvalid) {
		s.Errorf("a request of an attempt that was abandoned meanwhile: want ErrInvalid, got %v", err)
	}
}

// blocked waits until one statement waits for a row.
func (s *stage) blocked() {
	s.Helper()
	must(s, eventually(func() error {
		var stuck int
		err := s.admin.QueryRow(s.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").Scan(&stuck)
		if err == nil && stuck != 1 {
			err = fmt.Errorf("%d statements wait for the row", stuck)
		}
		return err
	}))
}

func (s *stage) expire() {
	s.Helper()
	s.row("expires = clock_timestamp() - interval '1 second'")
	if _, err := s.b.TryAcquire(s.Context(), request(s.key, time.Hour)); !errors.Is(err, backend.ErrLocked) {
		s.Errorf("TryAcquire of a key with waiters: want ErrLocked, got %v", err)
	}
}

// deadProcess: a grant that is not claimed removes all waiters of its process.
func deadProcess(s *stage) {
	g := s.try()
	for range 3 {
		s.enqueue(noProcess)
	}
	live := s.enqueue("1111111111111111")
	s.enqueue(noProcess)
	last := s.enqueue("2222222222222222")
	must(s, g.Release(s.Context()))
	s.expire()
	if owner, queue, _ := s.state(); owner != live.Owner || queue != last.Owner {
		s.Errorf("after an unclaimed grant: want %s granted and %s behind it, got %s and %s", live.Owner, last.Owner, owner, queue)
	}
}

// manyUnclaimed: after four unclaimed grants in a row the waiter that asks is granted, and
// those before it keep their places.
func manyUnclaimed(s *stage) {
	g := s.try()
	var dead []backend.Request
	for i := range 7 {
		dead = append(dead, s.enqueue(fmt.Sprintf("%016d", i)))
	}
	live := s.enqueue("aaaaaaaaaaaaaaaa")
	must(s, g.Release(s.Context()))
	for range 3 {
		s.expire()
	}
	s.row("expires = clock_timestamp() - interval '1 second'")
	if owner, _, _ := s.state(); owner != dead[3].Owner {
		s.Errorf("after three unclaimed grants: want %s, got %s", dead[3].Owner, owner)
	}
	g, err := s.b.TryAcquire(s.Context(), live) // as it polls
	must(s, err)
	must(s, g.Renew(s.Context(), time.Hour))
	if _, queue, _ := s.state(); queue != dead[4].Owner+","+dead[5].Owner+","+dead[6].Owner {
		s.Errorf("want the others to keep their places, got %q", queue)
	}
}

// TestDeadWaiters measures until a live waiter has a released lock, at a TTL of 30 s.
func TestDeadWaiters(t *testing.T) {
	s, admin := server(t)
	for name, c := range map[string]struct {
		processes, waiters int
		most               time.Duration
	}{
		"two waiters of one process": {1, 2, 5900 * time.Millisecond}, // less than two provisional TTLs
		"two processes":              {2, 1, 8900 * time.Millisecond}, // less than three
		"twenty processes":           {20, 1, 35 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			if c.processes > 2 {
				provision.LeaveOut(t, "twenty dead processes that waited")
			}
			t.Parallel()
			a, b := open(t, pgtest.With(s, nil)), open(t, pgtest.With(s, nil))
			st := &stage{t, s, admin, a, name}
			g, err := a.TryAcquire(t.Context(), request(name, 30*time.Second))
			must(t, err)
			for p := range c.processes {
				for range c.waiters {
					st.enqueue(fmt.Sprintf("%016d", p))
				}
			}
			got := waitFor(t, b, request(name, 30*time.Second))
			begun := time.Now()
			must(t, g.Release(t.Context()))
			select {
			case o := <-got:
				must(t, o.err)
				t.Logf("granted %v after the release", time.Since(begun))
			case <-time.After(c.most):
				t.Errorf("not granted within %v", c.most)
			}
		})
	}
}

// TestDeadWaitersAfterAnEarlierHandOver: a client that has just handed a key over to a live
// waiter hands it over to dead ones.
func TestDeadWaitersAfterAnEarlierHandOver(t *testing.T) {
	s, admin := server(t)
	a, b := open(t, pgtest.With(s, nil)), open(t, pgtest.With(s, nil))
	st := &stage{t, s, admin, a, "k"}
	var got <-chan outcome
	for _, dead := range []int{0, 2} {
		g, err := a.TryAcquire(t.Context(), request("k", 30*time.Second))
		must(t, err)
		for p := range dead {
			st.enqueue(fmt.Sprintf("%016d", p))
		}
		got = waitFor(t, b, request("k", 30*time.Second))
		must(t, g.Release(t.Context()))
		if dead > 0 {
			break
		}
		o := <-got
		must(t, o.err)
		must(t, o.g.Release(t.Context()))
		time.Sleep(time.Second) // or the provisional grants of both hand-overs end at about the same time
	}
	select {
	case o := <-got:
		must(t, o.err)
	case <-time.After(20 * time.Second): // three provisional TTLs, and slack
		t.Error("not granted within 20 s, at a TTL of 30 s")
	}
}

// TestOneRequestInFlight: however many attempts of a process wait for a row that another
// transaction has locked, one of them has a connection, and renewals have theirs.
func TestOneRequestInFlight(t *testing.T) {
	s, admin := server(t)
	b := open(t, pgtest.With(s, nil, "pool_size", "2"))
	other, err := b.TryAcquire(t.Context(), request("other", time.Hour))
	must(t, err)
	held, err := b.TryAcquire(t.Context(), request("k", time.Hour))
	must(t, err)
	tx, err := admin.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM interlock WHERE name = 'lock:k' FOR UPDATE")
	must(t, err)
	got := make(chan error, 100)
	for range cap(got) {
		go func() {
			g, err := b.Acquire(t.Context(), request("k", time.Hour))
			if err == nil {
				err = g.Release(t.Context())
			}
			got <- err
		}()
	}
	stuck := func() (n int) {
		must(t, admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").Scan(&n))
		return n
	}
	must(t, eventually(func() error {
		if stuck() == 0 {
			return errors.New("no request waits for the row")
		}
		return nil
	}))
	for range 10 {
		must(t, other.Renew(t.Context(), time.Hour))
	}
	if n := stuck(); n != 1 {
		t.Errorf("want one request in flight, got %d", n)
	}
	must(t, tx.Rollback(t.Context()))
	must(t, held.Release(t.Context()))
	for range cap(got) {
		must(t, <-got)
	}
}

// TestAbandonBatch abandons waiters, a holder and attempts that never arrived. A row that
// another transaction has locked does not keep the others from being abandoned.
func TestAbandonBatch(t *testing.T) {
	s, admin := server(t)
	b := open(t, pgtest.With(s, nil, "timeout", "5s"))
	var reqs []backend.Request
	for i := range 80 {
		req := request(fmt.Sprint("k", i%40), time.Hour)
		if reqs = append(reqs, req); i < 40 {
			_, err := b.TryAcquire(t.Context(), req)
			must(t, err)
		}
	}
	tx, err := admin.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM interlock WHERE name = 'lock:k7' FOR UPDATE")
	must(t, err)
	for i, err := range b.AbandonBatch(t.Context(), reqs) {
		if (err != nil) != (i%40 == 7) {
			t.Errorf("attempt %d: %v", i, err)
		}
	}
	must(t, tx.Rollback(t.Context()))
	for i, err := range b.AbandonBatch(t.Context(), reqs) {
		if err != nil {
			t.Errorf("attempt %d again: %v", i, err)
		}
	}
	for i, req := range reqs {
		if _, err := b.TryAcquire(t.Context(), req); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("attempt %d after it was abandoned: want ErrInvalid, got %v", i, err)
		}
	}
	g, err := b.TryAcquire(t.Context(), request("k3", time.Minute))
	must(t, err)
	must(t, g.Release(t.Context()))
}

// TestReleaseOnANewTable releases a lock with 2,000 waiters before the table was analyzed: the server reads the first
// waiters only, although it plans for a few.
func TestReleaseOnANewTable(t *testing.T) {
	s, admin := server(t)
	b := open(t, pgtest.With(s, nil, "table", "new_locks"))
	sql(t, admin, "ALTER TABLE new_locks SET (autovacuum_enabled = off)")
	g, err := b.TryAcquire(t.Context(), request("k", time.Hour))
	must(t, err)
	sql(t, admin, `INSERT INTO new_locks (name, place, waiter, process, metadata, ttl)
		SELECT name, n, 'waiter ' || n, '0000000000000000', repeat('x', 100), 3600000 FROM new_locks, generate_series(1, 2000) n WHERE place = 0`)
	sql(t, admin, "UPDATE new_locks SET last = 2000 WHERE place = 0")
	var pages, before, after int64
	must(t, admin.QueryRow(t.Context(), "SELECT pg_relation_size('new_locks') / 8192").Scan(&pages))
	pagesRead := func(n *int64) {
		must(t, admin.QueryRow(t.Context(), `SELECT sum(shared_blks_hit + shared_blks_read)::bigint FROM pg_stat_statements
			WHERE query LIKE '%"new_locks"%'`).Scan(n))
	}
	pagesRead(&before)
	must(t, g.Release(t.Context()))
	pagesRead(&after)
	t.Logf("%d pages read, of %d", after-before, pages)
	if after == before || after-before > pages/2 {
		t.Errorf("the release read %d pages of a table of %d, want some and at most half", after-before, pages)
	}
}
