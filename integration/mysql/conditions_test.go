package mysql_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/mysqllock"
)

// TestSteps tests the conditions of each statement, one by one.
func TestSteps(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin := provision.MySQLPool(t, s, nil)
		b := openRaw(t, s.URL())
		for name, f := range map[string]func(*stage){
			"another's grant": anothersGrant, "behind the first waiter": behindTheFirst, "late request to enter": lateRequestToEnter, "claimed": claimedGrant, "expired grant": expiredGrant, "tokens": tokens, "first waiter": firstWaiter,
			"provisional": provisionalGrant, "abandoned": abandonedAttempt, "unanswered": unansweredRequest,
			"unanswered, then granted": unansweredThenGranted, "trust": trustFromSending, "trust of a hand-off": trustOfHandOff,
			"little is left": littleIsLeft, "guard": guardConditions, "rolled back": rolledBack,
		} {
			t.Run(name, func(t *testing.T) {
				f(&stage{t, s, admin, b, strings.ReplaceAll(name, " ", "-")})
			})
		}
	})
}

func anothersGrant(s *stage) {
	stale := s.try()
	if _, err := s.b.(backend.Breaker).Break(s.Context(), s.key, ""); err != nil {
		s.Fatal(err)
	}
	g := s.try()
	s.lost("Renew of a broken grant", stale.Renew(s.Context(), time.Hour))
	s.lost("Keep of a broken grant", stale.(backend.Keeper).Keep(s.Context(), time.Hour))
	s.lost("Release of a broken grant", stale.Release(s.Context()))
	s.no(g.Renew(s.Context(), time.Hour))
	s.no(g.Release(s.Context()))
}

func expiredGrant(s *stage) {
	g := s.try()
	s.expire()
	s.lost("Renew of an expired grant", g.Renew(s.Context(), time.Hour))
	s.lost("Keep of an expired grant", g.(backend.Keeper).Keep(s.Context(), time.Hour))
	s.lost("Release of an expired grant", g.Release(s.Context()))
	next := s.try()
	s.refused("a held key", s.b, s.request(), backend.ErrLocked)
	s.no(next.Release(s.Context()))
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
		s.no(g.Release(s.Context()))
	}
	next("the first")
	next("the second")
	s.row("token=token+3600000000")
	last += 3600e6
	next("an hour ahead of the clock")
	g := s.try()
	rises("again", g.Token())
	got := s.acquire(s.b, s.request())
	s.no(g.Release(s.Context()))
	g = s.granted(got)
	rises("a hand-off ahead of the clock", g.Token())
	s.no(g.Release(s.Context()))
	last -= 3600e6 // what a client saw before the row's token was raised
	exec(s.T, s.admin, "DELETE FROM interlock WHERE name='lock:tokens'")
	next("a lost row")
}

func firstWaiter(s *stage) {
	s.try()
	first := s.enqueue()
	s.expire()
	s.refused("TryAcquire of a free key with a queue", s.b, s.request(), backend.ErrLocked)
	if owner, waiters, ttl := s.read(); owner != first.Owner || waiters != "" || ttl > 3*time.Second {
		s.Errorf("want the key granted to the first waiter for 3s, got %q for %v, waiters %q", owner, ttl, waiters)
	}
}

// behindTheFirst enters the queue of a key whose lease has expired.
func behindTheFirst(s *stage) {
	s.try()
	first := s.enqueue()
	s.expire()
	behind, end := context.WithCancel(s.Context())
	defer end()
	waits, done := make(chan struct{}, 1), make(chan error, 1)
	req := s.request()
	req.OnWait = func(*backend.LockedError) { waits <- struct{}{} }
	go func() {
		_, err := s.b.(backend.Waiter).Acquire(behind, req)
		done <- err
	}()
	select {
	case <-waits:
	case err := <-done:
		s.Fatalf("want the attempt behind the first waiter, got %v", err)
	}
	eventually(s.T, "the key is granted to the first waiter", func() bool { owner, _, _ := s.read(); return owner == first.Owner })
	end()
	if err := <-done; !errors.Is(err, context.Canceled) {
		s.Errorf("a wait that was canceled: %v", err)
	}
	s.no(s.b.Abandon(s.Context(), req))
}

// lateRequestToEnter sends the request of an abandoned attempt that would enter the queue at once,
// because another attempt of its process waits.
func lateRequestToEnter(s *stage) {
	g := s.try()
	waits := s.request()
	got := s.acquire(s.b, waits)
	late := s.request()
	s.no(s.b.Abandon(s.Context(), late))
	if _, err := s.b.(backend.Waiter).Acquire(s.Context(), late); !errors.Is(err, backend.ErrInvalid) {
		s.Errorf("a request that arrives after it was abandoned: want ErrInvalid, got %v", err)
	}
	if _, waiters, _ := s.read(); waiters != waits.Owner {
		s.Errorf("want %s alone in the queue, got %q", waits.Owner, waiters)
	}
	s.no(g.Release(s.Context()))
	s.no(s.granted(got).Release(s.Context()))
}

// claimedGrant lets a grant expire that was handed over and renewed: the other waiters of its process
// keep their places.
func claimedGrant(s *stage) {
	b, other := openRaw(s.T, s.s.URL()+"?notify=off"), openRaw(s.T, s.s.URL()+"?notify=off")
	g := s.try()
	first, second := s.acquire(b, s.request()), s.acquire(b, s.request())
	last := s.acquire(other, s.request())
	s.no(g.Release(s.Context()))
	s.no(s.granted(first).Renew(s.Context(), time.Hour))
	s.expire()
	select {
	case g := <-last:
		s.Fatalf("the last waiter was granted before the second: %v", g)
	case g = <-second:
		s.no(g.Release(s.Context()))
	case <-time.After(bound):
		s.Fatalf("not granted within %v", bound)
	}
	s.no(s.granted(last).Release(s.Context()))
}

func provisionalGrant(s *stage) {
	g := s.try()
	next := s.enqueue()
	s.no(g.Release(s.Context()))
	if owner, _, ttl := s.read(); owner != next.Owner || ttl > 3*time.Second {
		s.Errorf("a hand-off: want the key granted to %s for 3s, got %s for %v", next.Owner, owner, ttl)
	}
}

func abandonedAttempt(s *stage) {
	g := s.try()
	waits := s.enqueue()
	behind := s.enqueue()
	s.no(s.b.Abandon(s.Context(), waits))
	if _, waiters, _ := s.read(); waiters != behind.Owner {
		s.Errorf("want %s alone in the queue, got %q", behind.Owner, waiters)
	}
	s.no(s.b.Abandon(s.Context(), behind))
	s.refused("a request that arrives after it was abandoned, held key", s.b, waits, backend.ErrInvalid)
	s.no(g.Release(s.Context()))
	s.refused("a request that arrives after it was abandoned", s.b, waits, backend.ErrInvalid)
	if owner, _, _ := s.read(); owner != "" {
		s.Errorf("a request that arrives after it was abandoned: want no holder, got %s", owner)
	}
}

// unansweredRequest loses the reply to a request to enter the queue. After Abandon the same
// request is refused: it may have been in flight.
func unansweredRequest(s *stage) {
	b, p := s.behindProxy("")
	req := s.request()
	literal := []byte(hex.EncodeToString([]byte(req.Owner)))
	p.DropReply(func(request []byte) bool { return bytes.Contains(request, literal) })
	if _, err := b.(backend.Waiter).Acquire(s.Context(), req); !errors.Is(err, backend.ErrUncertain) {
		s.Fatalf("a request whose reply was lost: want ErrUncertain, got %v", err)
	}
	s.no(b.Abandon(s.Context(), req))
	s.refused("an unanswered request that arrives after its attempt was abandoned", s.b, req, backend.ErrInvalid)
}

// unansweredThenGranted loses the reply to a request of an attempt that is granted
// afterwards. After its release the same request is refused: it may have been in flight.
func unansweredThenGranted(s *stage) {
	b, p := s.behindProxy("?notify=off")
	s.try()
	req := s.request()
	got := s.acquire(b, req)
	literal := []byte(hex.EncodeToString([]byte(req.Owner)))
	dropped := p.DropReply(func(request []byte) bool {
		return bytes.Contains(request, []byte("INSERT")) && bytes.Contains(request, literal)
	})
	exec(s.T, s.admin, "DELETE FROM interlock WHERE owner='"+req.Owner+"'") // it enters the queue again
	select {
	case <-dropped:
	case <-time.After(bound):
		s.Fatalf("no second request within %v", bound)
	}
	eventually(s.T, "the attempt is in the queue", func() bool { _, waiters, _ := s.read(); return waiters == req.Owner })
	s.expire()
	s.no(s.granted(got).Release(s.Context()))
	s.refused("an unanswered request that arrives after the release of its attempt", s.b, req, backend.ErrInvalid)
	if owner, _, _ := s.read(); owner != "" {
		s.Errorf("after the release: want no holder, got %s", owner)
	}
}

func trustFromSending(s *stage) {
	b, p := s.behindProxy("")
	const oneWay, ttl = 300 * time.Millisecond, time.Hour
	warm, err := b.TryAcquire(s.Context(), s.request())
	s.no(err)
	s.no(warm.Release(s.Context()))
	p.Delay(oneWay)
	defer p.Delay(0)
	counts := func(what string, g backend.Grant) {
		s.Helper()
		until := g.Until()
		if most := time.Now().Add(ttl - 2*oneWay); until.After(most) {
			s.Errorf("%s over a link of %v each way: trusted %v too long", what, oneWay, until.Sub(most))
		}
	}
	g, err := b.TryAcquire(s.Context(), s.request())
	s.no(err)
	counts("a grant", g)
	s.no(g.Renew(s.Context(), ttl))
	counts("a renewal", g)
	s.no(g.(backend.Keeper).Keep(s.Context(), ttl))
	counts("Keep", g)
}

// trustOfHandOff wakes a waiter over a slow link: it must not trust its lease for longer than
// the row says.
func trustOfHandOff(s *stage) {
	b, p := s.behindProxy("")
	g := s.try()
	got := s.acquire(b, s.request())
	eventually(s.T, "a connection that waits", func() bool { return len(blocked(s.T, s.admin, "root")) == 1 })
	p.Delay(300 * time.Millisecond)
	defer p.Delay(0)
	s.no(g.Release(s.Context()))
	until := s.granted(got).Until()
	var us int64
	s.no(s.admin.QueryRow("SELECT expires-"+serverNow+" FROM interlock WHERE name=?", s.name()).Scan(&us))
	if end := time.Now().Add(time.Duration(us) * time.Microsecond); until.After(end) {
		s.Errorf("a grant by a hand-off is trusted %v longer than the row says", until.Sub(end))
	}
}

// littleIsLeft grants the key to a waiter provisionally, and little of the lease is left when
// the waiter polls.
func littleIsLeft(s *stage) {
	b := openRaw(s.T, s.s.URL()+"?notify=off")
	s.try()
	req := s.request()
	got := s.acquire(b, req)
	s.row("owner=?,served=last,expires="+serverNow+"+1400000", req.Owner)
	if left := time.Until(s.granted(got).Until()); left < time.Minute {
		s.Errorf("a waiter that noticed its grant late: want a lease of an hour, %v are left", left)
	}
}

func guardConditions(s *stage) {
	b := s.b.(*mysqllock.Backend)
	g := s.try()
	guard := func(token uint64, within func()) error {
		tx, err := s.admin.BeginTx(s.Context(), nil)
		s.no(err)
		defer func() { _ = tx.Rollback() }()
		if err := b.Guard(s.Context(), tx, s.key, token); err != nil {
			return err
		}
		within()
		return nil
	}
	if err := guard(g.Token(), func() {
		var owner string
		err := s.admin.QueryRow("SELECT owner FROM interlock WHERE name=? FOR UPDATE NOWAIT", s.name()).Scan(&owner)
		var e *mysql.MySQLError
		if !errors.As(err, &e) || e.Number != 1205 && e.Number != 3572 {
			s.Errorf("the row within a guarded transaction: want it locked, got %v", err)
		}
	}); err != nil {
		s.Errorf("the holder: %v", err)
	}
	s.lost("another token", guard(g.Token()+1, func() {}))
	s.expire()
	s.lost("an expired grant", guard(g.Token(), func() {}))
}
