package postgres_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/integration/provision"
)

// TestBehindTheRow: an operation waits for the row of the lock, and then sees what the transaction before it has done.
func TestBehindTheRow(t *testing.T) {
	st := newStage(t)
	for _, level := range levels {
		setLevel(t.Context(), t, st.admin, level)
		st.b = open(t, pgtest.With(st.s, nil))
		for what, f := range map[string]func(*stage){
			"release": releaseSeesTheQueue, "late request": abandonedMeanwhile, "renewal": brokenMeanwhile,
		} {
			t.Run(level+"/"+what, func(t *testing.T) {
				f(st.beside(t, strings.ReplaceAll(level+what, " ", "-")))
			})
		}
	}
}

// releaseSeesTheQueue releases while another transaction enters the queue.
func releaseSeesTheQueue(s *stage) {
	g, released, tx := s.try(), make(chan error, 1), s.begin()
	waiter := s.enqueue(tx, noProcess, backend.Share{})
	go func() { released <- g.Release(s.Context()) }()
	s.blocked()
	must(s, tx.Commit(s.Context()))
	must(s, <-released)
	if holders, _ := s.info(); !slices.Equal(holders, []string{waiter.Owner}) {
		s.Errorf("want the waiter granted that came during the release, got %q", holders)
	}
}

// abandonedMeanwhile abandons an attempt while its request waits for the row.
func abandonedMeanwhile(s *stage) {
	must(s, s.try().Release(s.Context()))
	req, got, tx := s.share(backend.Share{}), make(chan error, 1), s.begin()
	s.call(tx, "end", "end", s.name(), req.Owner, noProcess, true, "", true)
	go func() { _, err := s.b.TryAcquire(s.Context(), req); got <- err }()
	s.blocked()
	must(s, tx.Commit(s.Context()))
	if err := <-got; !errors.Is(err, backend.ErrInvalid) {
		s.Errorf("a request of an attempt that was abandoned meanwhile: want ErrInvalid, got %v", err)
	}
}

// brokenMeanwhile breaks a lock while its renewal waits for the row.
func brokenMeanwhile(s *stage) {
	g, renewed, tx := s.try(), make(chan error, 1), s.begin()
	s.call(tx, "rule", "break", s.name(), "", "", "", 0, 0, 0, false, "", "", true)
	go func() { renewed <- g.Renew(s.Context(), time.Hour) }()
	s.blocked()
	must(s, tx.Commit(s.Context()))
	s.lost("Renew of a lock that was broken meanwhile", <-renewed)
}

// TestTrustFromTheSend: a lease is trusted from when the request was sent, not from its reply.
func TestTrustFromTheSend(t *testing.T) {
	s := newStage(t)
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

// TestNotificationsInterrupted releases a lock after the listening connection was lost and before the next one listens.
// The waiter gets the lock, and both events are reported.
func TestNotificationsInterrupted(t *testing.T) {
	s := newStage(t)
	p := provision.NewProxy(s, s.s.Addr())
	b := open(s, pgtest.With(s.s, nil, "listen", p.Addr()))
	reports := make(chan error, 10)
	b.ReportStatus(func(_ string, err error) { reports <- err })
	g := s.try()
	got := waitFor(s, b, request(s.key, time.Hour))
	connections := p.Connections()
	p.Stall()
	p.ResetPeer()
	must(s, eventually(func() error {
		if n := p.Connections(); n <= connections {
			return errors.New("it has not connected again")
		}
		return nil
	}))
	must(s, g.Release(s.Context()))
	must(s, p.Heal())
	s.next(got)
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

// TestTokensAheadOfTheClock: tokens rise after the clock of the server was set back, also over a hand-off.
func TestTokensAheadOfTheClock(t *testing.T) {
	s := newStage(t)
	must(s, s.try().Release(s.Context()))
	var last uint64
	ahead := "UPDATE interlock SET token = token + 3600000000 WHERE name = $1 RETURNING token"
	must(s, s.admin.QueryRow(s.Context(), ahead, s.name()).Scan(&last))
	g := s.try()
	got := waitFor(s, s.b, request(s.key, time.Hour))
	must(s, g.Release(s.Context()))
	next := s.next(got)
	if g.Token() <= last || next.Token() <= g.Token() {
		s.Errorf("want rising tokens, got %d, %d, %d", last, g.Token(), next.Token())
	}
}

// TestAbandonBatch abandons waiters, a holder and attempts that never arrived. A row that another transaction has locked
// does not keep the others from being abandoned.
func TestAbandonBatch(t *testing.T) {
	s := newStage(t)
	b := open(t, pgtest.With(s.s, nil, "timeout", "5s"))
	var reqs []backend.Request
	for i := range 80 {
		req := request("k"+string(rune('A'+i%40)), time.Hour)
		if reqs = append(reqs, req); i < 40 {
			_, err := b.TryAcquire(t.Context(), req)
			must(t, err)
		}
	}
	tx := s.begin()
	_, err := tx.Exec(t.Context(), "SELECT FROM interlock WHERE name = 'lock:kH' FOR UPDATE")
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
	g, err := b.TryAcquire(t.Context(), request("kD", time.Minute))
	must(t, err)
	must(t, g.Release(t.Context()))
}

// atOnce returns a context that ends soon: with it an operation fails that waits for a row.
func (s *stage) atOnce() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), 3*time.Second)
	s.Cleanup(cancel)
	return ctx
}
