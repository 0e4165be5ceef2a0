package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/pglock"
)

// TestAlive tests how a process is asked whether it is alive, while its waiter is in the way of shares.
func TestAlive(t *testing.T) {
	s, admin := server(t)
	b := open(t, pgtest.With(s, nil))
	for name, f := range map[string]func(*stage){
		"answered": answered, "answered by a poll": answeredByPoll, "answered meanwhile": answeredMeanwhile, "removed wrongly": removedWrongly, "removed reader": removedReader,
		"two dead processes": twoDeadProcesses, "too large": tooLarge, "behind an exclusive holder": behindExclusive,
		"after an exclusive holder": afterExclusive, "after a downgrade": afterDowngrade, "cost": costOfChecks,
	} {
		t.Run(name, func(t *testing.T) {
			if name != "cost" && name != "behind an exclusive holder" { // which count all statements, and run before the others
				t.Parallel()
			}
			f(&stage{t, s, admin, b, strings.ReplaceAll(name, " ", "-")})
		})
	}
}

func (s *stage) reader() backend.Request { return s.share(backend.Reader) }

// another returns the backend of another process.
func (s *stage) another(params ...string) *pglock.Backend {
	s.Helper()
	return open(s, pgtest.With(s.s, nil, params...))
}

// mark sets what a waiter was asked, and when its answer is due.
func (s *stage) mark(owner string, unclaimed int, due string) {
	s.Helper()
	tag, err := s.admin.Exec(s.Context(), "UPDATE interlock SET unclaimed = $2, expires = clock_timestamp() + $3::interval WHERE waiter = $1 AND place > 0", owner, unclaimed, due)
	if err != nil || tag.RowsAffected() != 1 {
		s.Fatalf("mark a waiter: %v, %v", tag, err)
	}
}

// wantAnswer waits until the waiter was asked, and its process has answered.
func (s *stage) wantAnswer(owner string) {
	s.Helper()
	must(s, eventually(func() error {
		var unclaimed int
		var asked bool
		err := s.admin.QueryRow(s.Context(), "SELECT unclaimed, expires IS NOT NULL FROM interlock WHERE waiter = $1 AND place > 0", owner).Scan(&unclaimed, &asked)
		if err == nil && (!asked || unclaimed != 0) {
			err = fmt.Errorf("asked: %v, unclaimed: %d", asked, unclaimed)
		}
		return err
	}))
}

// grantedWithin checks that a share is granted between the two times after begun.
func (s *stage) grantedWithin(begun time.Time, from, to time.Duration, got <-chan outcome) backend.Grant {
	s.Helper()
	g := s.next(got)
	if took := time.Since(begun); took < from || took > to {
		s.Errorf("want a grant after %v to %v, got it after %v", from, to, took)
	}
	return g
}

// drain releases a grant, and then those of waiters, one after the other.
func (s *stage) drain(g backend.Grant, queue ...<-chan outcome) {
	s.Helper()
	must(s, g.Release(s.Context()))
	for _, got := range queue {
		must(s, s.next(got).Release(s.Context()))
	}
}

// answered: a share that comes asks the process of the first waiter, which answers.
func answered(s *stage) {
	g, writer := s.tryShare(backend.Reader), request(s.key, time.Hour)
	first := waitFor(s, s.b, writer)
	for range 2 { // also again
		b := s.another()
		ctx, cancel := context.WithCancel(s.Context())
		req, waits, left := s.reader(), make(chan struct{}), make(chan error)
		req.OnWait = func(*backend.LockedError) { close(waits) }
		go func() { _, err := b.Acquire(ctx, req); left <- err }()
		<-waits
		s.wantAnswer(writer.Owner)
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			s.Errorf("a cancelled wait: want context.Canceled, got %v", err)
		}
		must(s, b.Abandon(s.Context(), req))
		_, err := s.admin.Exec(s.Context(), "UPDATE interlock SET expires = NULL WHERE waiter = $1", writer.Owner)
		must(s, err)
	}
	s.drain(g, first)
}

// answeredByPoll: a process without notifications answers by its polls.
func answeredByPoll(s *stage) {
	for _, share := range []backend.Share{{}, {Weight: 3, Capacity: 3}} {
		held := backend.Reader
		if share.Capacity > 0 {
			held = backend.Share{Weight: 1, Capacity: 3}
		}
		s.key += "-poll"
		g, req := s.tryShare(held), s.share(share)
		first := waitFor(s, s.another("listen", "false"), req)
		behind := waitFor(s, s.b, s.share(held))
		s.wantAnswer(req.Owner)
		s.drain(g, first, behind)
	}
}

// answeredMeanwhile: a process that answers, or is asked again, while the removal of its waiters waits for the row,
// keeps its place.
func answeredMeanwhile(s *stage) {
	for i, unclaimed := range []int{0, 1} {
		s.key += fmt.Sprint("-", i)
		g, writer := s.tryShare(backend.Reader), s.enqueue(noProcess)
		s.mark(writer.Owner, 1, "-1 second")
		tx, err := s.admin.Begin(s.Context())
		must(s, err)
		defer func() { _ = tx.Rollback(context.Background()) }()
		behind := waitFor(s, s.b, s.reader())
		_, err = tx.Exec(s.Context(), "SELECT FROM interlock WHERE name = $1 AND place = 0 FOR UPDATE", []byte("lock:"+s.key))
		must(s, err)
		s.blocked()
		due := "-1 second" // as it was; the answer does not change it
		if unclaimed == 1 {
			due = "5 seconds"
		}
		s.mark(writer.Owner, unclaimed, due)
		must(s, tx.Commit(s.Context()))
		time.Sleep(500 * time.Millisecond)
		if _, queue, _ := s.state(); !strings.HasPrefix(queue, writer.Owner+",") {
			s.Errorf("unclaimed = %d: want the first waiter to keep its place, got the queue %s", unclaimed, queue)
		}
		s.mark(writer.Owner, 1, "-1 second")
		s.drain(s.next(behind))
		s.drain(g)
	}
}

// removedWrongly: a process that is alive, and whose answer did not arrive in time, enters its waiters again.
func removedWrongly(s *stage) {
	g, writer := s.tryShare(backend.Reader), request(s.key, time.Hour)
	first, second := waitFor(s, s.b, writer), waitFor(s, s.b, request(s.key, time.Hour))
	s.mark(writer.Owner, 1, "10 seconds") // no poll of a writer sees it before
	behind := waitFor(s, s.another(), s.reader())
	s.mark(writer.Owner, 1, "-1 second")
	s.drain(s.next(behind))
	s.drain(g, first, second)
}

// removedReader: a reader and a writer were removed from the queue of a free lock, because the process did not claim the
// reader's grant. The notification of that grant arrives late: the reader asks, is granted, and makes the writer ask.
func removedReader(s *stage) {
	g, reader := s.try(), s.reader()
	first, second := waitFor(s, s.b, reader), waitFor(s, s.b, request(s.key, time.Hour))
	s.row("owner = NULL, expires = NULL, served = last")
	_, err := s.admin.Exec(s.Context(), `WITH gone AS (DELETE FROM interlock WHERE name = $1 AND place > 0 RETURNING *)
		SELECT pg_notify('interlock_' || left(process, 16), concat_ws(' ', 'G', waiter, 1, 0, 0, encode(name, 'hex'))) FROM gone WHERE waiter = $2`, []byte("lock:"+s.key), reader.Owner)
	must(s, err)
	s.drain(s.next(first), second)
	s.lost("Release of a grant that was removed", g.Release(s.Context()))
}

// twoDeadProcesses: each delays a share that waits by 3 s, and a live waiter between them keeps its place.
func twoDeadProcesses(s *stage) {
	g := s.tryShare(backend.Reader)
	s.enqueue(noProcess)
	s.enqueue(noProcess)
	s.enqueue("1111111111111111")
	begun := time.Now()
	one := waitFor(s, s.b, s.reader())
	s.enqueue(noProcess)
	two := waitFor(s, s.another(), s.reader())
	s.drain(s.grantedWithin(begun, 6*time.Second, 8*time.Second, one))
	s.drain(s.grantedWithin(begun, 6*time.Second, 8*time.Second, two))
	s.drain(g)
}

// tooLarge: a share that does not fit beside the holders does not ask, as it gains nothing.
func tooLarge(s *stage) {
	of := func(weight int) backend.Share { return backend.Share{Weight: weight, Capacity: 3} }
	g, dead := s.tryShare(of(1)), s.enqueueShare(noProcess, of(3))
	large := waitFor(s, s.b, s.share(of(3)))
	time.Sleep(3500 * time.Millisecond)
	s.wantNotAsked(dead.Owner)
	s.drain(g, large)
}

func (s *stage) wantNotAsked(owner string) {
	s.Helper()
	var asked bool
	must(s, s.admin.QueryRow(s.Context(), "SELECT expires IS NOT NULL FROM interlock WHERE waiter = $1", owner).Scan(&asked))
	if asked {
		s.Error("want no process asked whether it is alive")
	}
}

// behindExclusive: waiters behind an exclusive holder execute no statement.
func behindExclusive(s *stage) {
	g, dead := s.try(), s.enqueue(noProcess)
	reader := waitFor(s, s.b, s.reader())
	if n := s.commands(7 * time.Second); n > 0 {
		s.Errorf("a reader behind an exclusive holder: want no statement, got %d", n)
	}
	s.wantNotAsked(dead.Owner)
	s.drain(g, reader)
}

// commands returns how many statements all clients execute within d.
func (s *stage) commands(d time.Duration) int64 {
	s.Helper()
	time.Sleep(500 * time.Millisecond)
	before, err := pgtest.Commands(s.Context(), s.admin)
	must(s, err)
	time.Sleep(d)
	after, err := pgtest.Commands(s.Context(), s.admin)
	must(s, err)
	return after - before
}

// afterExclusive: readers that follow an exclusive holder leave a dead writer in the way of others, who did not ask
// while the holder was exclusive.
func afterExclusive(s *stage) {
	g := s.try()
	one := waitFor(s, s.another(), s.reader())
	s.enqueue(noProcess)
	two := waitFor(s, s.b, s.reader())
	begun := time.Now()
	must(s, g.Release(s.Context()))
	reader := s.next(one)
	must(s, reader.Renew(s.Context(), time.Hour))
	s.drain(s.grantedWithin(begun, 3*time.Second, 8*time.Second, two))
	s.drain(reader)
}

func afterDowngrade(s *stage) {
	g := s.try()
	s.enqueue(noProcess)
	two := waitFor(s, s.b, s.reader())
	begun := time.Now()
	must(s, g.(backend.Downgrader).Downgrade(s.Context()))
	s.drain(s.grantedWithin(begun, 3*time.Second, 8*time.Second, two))
	s.drain(g)
}

// costOfChecks: the readers of a process behind a live writer cost one statement each 3 s, and the answer another one.
func costOfChecks(s *stage) {
	g := s.tryShare(backend.Reader)
	writer := waitFor(s, s.another(), request(s.key, time.Hour))
	all := []<-chan outcome{writer}
	for range 20 {
		all = append(all, waitFor(s, s.b, s.reader()))
	}
	if n := s.commands(9 * time.Second); n < 4 || n > 8 {
		s.Errorf("20 readers behind a live writer: want 3 checks and 3 answers in 9 s, or one more or less, got %d statements", n)
	}
	s.drain(g, all...)
}
