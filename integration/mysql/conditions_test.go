package mysql_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/mysqllock"
)

// stage is a server, a backend of it, and a lock whose row the test changes by hand:
// time passes, clocks are set and processes die without waiting.
type stage struct {
	*testing.T
	s     *provision.Server
	admin *sql.DB
	b     backend.Backend
	key   string
}

// TestSteps is about the conditions of each statement, one by one.
func TestSteps(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin := provision.MySQLPool(t, s, nil)
		b := openRaw(t, s.URL())
		for name, f := range map[string]func(*stage){
			"another's grant": anothersGrant, "expired grant": expiredGrant, "tokens": tokens, "the queue first": queueFirst,
			"claim": claimed, "abandoned": abandonedAttempt, "unanswered": unansweredRequest, "unanswered, then granted": unansweredThenGranted,
			"trust":               trustFromTheSend,
			"trust of a hand-off": trustOfHandOff, "little is left": littleIsLeft, "guard": guardConditions,
			"taken back": takenBack,
		} {
			t.Run(name, func(t *testing.T) {
				f(&stage{t, s, admin, b, strings.ReplaceAll(name, " ", "-")})
			})
		}
	})
}

func openRaw(t *testing.T, url string) backend.Backend {
	t.Helper()
	b, err := suite.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	return b
}

const serverNow = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))"

func (s *stage) row(set string, args ...any) {
	s.Helper()
	if !updates(s.T, s.admin, "UPDATE interlock SET step=step+1,"+set+" WHERE name=?", append(args, s.name())...) {
		s.Fatalf("set %s: no such row", set)
	}
}

func (s *stage) name() []byte { return []byte(mysqllock.Key(mysqllock.DefaultPrefix, s.key)) }

func (s *stage) request() backend.Request {
	var id [16]byte
	_, _ = rand.Read(id[:])
	return backend.Request{Key: s.key, Owner: hex.EncodeToString(id[:]), TTL: time.Hour}
}

func (s *stage) no(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *stage) try() backend.Grant {
	s.Helper()
	g, err := s.b.TryAcquire(s.Context(), s.request())
	s.no(err)
	return g
}

func (s *stage) refused(what string, b backend.Backend, req backend.Request, want error) {
	s.Helper()
	if _, err := b.TryAcquire(s.Context(), req); !errors.Is(err, want) {
		s.Errorf("%s: want %v, got %v", what, want, err)
	}
}

// stands is who holds by the row, expired or not, who waits, and how long the grant
// was made for.
func (s *stage) stands() (owner, queue string, given time.Duration) {
	s.Helper()
	var us int64
	s.no(s.admin.QueryRow("SELECT owner, queue, expires-granted FROM interlock WHERE name=?", s.name()).Scan(&owner, &queue, &us))
	return owner, queue, time.Duration(us) * time.Microsecond
}

func (s *stage) lost(what string, err error) {
	s.Helper()
	if !errors.Is(err, backend.ErrLost) {
		s.Errorf("%s: want ErrLost, got %v", what, err)
	}
}

func (s *stage) expire() { s.row("expires=" + serverNow + "-1000000") }

// enqueue puts an attempt into the queue, of a process that does not exist.
func (s *stage) enqueue() backend.Request {
	req := s.request()
	s.row("queue=CONCAT(queue,?)", fmt.Sprintf(";%s,%010d,%016d,x", req.Owner, req.TTL.Milliseconds(), 1))
	return req
}

// acquire returns when the attempt waits.
func (s *stage) acquire(b backend.Backend, req backend.Request) <-chan backend.Grant {
	s.Helper()
	waits, got := make(chan struct{}, 1), make(chan backend.Grant, 1)
	req.OnWait = func(*backend.LockedError) { waits <- struct{}{} }
	go func() {
		g, err := b.(backend.Waiter).Acquire(s.Context(), req)
		if err != nil {
			s.Errorf("Acquire: %v", err)
		}
		got <- g
	}()
	select {
	case <-waits:
	case <-time.After(bound):
		s.Fatalf("it does not wait within %v", bound)
	}
	return got
}

func (s *stage) granted(got <-chan backend.Grant) backend.Grant {
	s.Helper()
	select {
	case g := <-got:
		if g == nil {
			s.FailNow()
		}
		return g
	case <-time.After(bound):
		s.Fatalf("not granted within %v", bound)
	}
	return nil
}

func anothersGrant(s *stage) {
	stale := s.try()
	if _, err := s.b.(backend.Breaker).Break(s.Context(), s.key); err != nil {
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
	rises("handed over ahead of the clock", g.Token())
	s.no(g.Release(s.Context()))
	last -= 3600e6 // what a client saw before the row's token was raised
	exec(s.T, s.admin, "DELETE FROM interlock WHERE name='lock:tokens'")
	next("a row that was lost")
}

func queueFirst(s *stage) {
	s.try()
	first := s.enqueue()
	s.expire()
	s.refused("TryAcquire of a free key with a queue", s.b, s.request(), backend.ErrLocked)
	if owner, queue, given := s.stands(); owner != first.Owner || queue != "" || given > 3*time.Second {
		s.Errorf("want the key given to the first in the queue, for 3s, got %q, for %v, and %q wait", owner, given, queue)
	}
}

func claimed(s *stage) {
	g := s.try()
	next := s.enqueue()
	s.no(g.Release(s.Context()))
	if owner, _, given := s.stands(); owner != next.Owner || given > 3*time.Second {
		s.Errorf("a grant that was handed over: want it %s's for 3s, got %s's for %v", next.Owner, owner, given)
	}
}

func abandonedAttempt(s *stage) {
	g := s.try()
	waits := s.enqueue()
	behind := s.enqueue()
	s.no(s.b.Abandon(s.Context(), waits))
	if _, queue, _ := s.stands(); strings.Contains(queue, waits.Owner) || !strings.Contains(queue, behind.Owner) {
		s.Errorf("want %s alone in the queue, got %q", behind.Owner, queue)
	}
	s.no(s.b.Abandon(s.Context(), behind))
	s.refused("a request that comes after it was abandoned, held key", s.b, waits, backend.ErrInvalid)
	s.no(g.Release(s.Context()))
	s.refused("a request that comes after it was abandoned", s.b, waits, backend.ErrInvalid)
	if owner, _, _ := s.stands(); owner != "" {
		s.Errorf("a request that comes after it was abandoned: want nobody to hold, got %s", owner)
	}
}

// distantly opens a backend behind a proxy.
func (s *stage) distantly() (backend.Backend, *provision.Proxy) {
	p := provision.NewProxy(s, s.s.Addr())
	return openRaw(s.T, strings.Replace(s.s.URL(), s.s.Addr(), p.Addr(), 1)), p
}

// unansweredRequest loses the reply to a request to wait in the queue: it is refused
// when it comes again, for it may have been on its way only.
func unansweredRequest(s *stage) {
	b, p := s.distantly()
	req := s.request()
	literal := []byte(hex.EncodeToString([]byte(req.Owner)))
	p.DropReply(func(request []byte) bool { return bytes.Contains(request, literal) })
	if _, err := b.(backend.Waiter).Acquire(s.Context(), req); !errors.Is(err, backend.ErrUncertain) {
		s.Fatalf("a request whose reply was lost: want ErrUncertain, got %v", err)
	}
	s.no(b.Abandon(s.Context(), req))
	s.refused("an unanswered request that comes after its attempt was abandoned", s.b, req, backend.ErrInvalid)
}

// unansweredThenGranted loses the reply to a request of an attempt that then has the
// lock: after its release the request is refused, for it may have been on its way only.
func unansweredThenGranted(s *stage) {
	p := provision.NewProxy(s, s.s.Addr())
	b := openRaw(s.T, strings.Replace(s.s.URL(), s.s.Addr(), p.Addr(), 1)+"?bell=off")
	s.try()
	req := s.request()
	got := s.acquire(b, req)
	literal := []byte(hex.EncodeToString([]byte(req.Owner)))
	dropped := p.DropReply(func(request []byte) bool {
		return bytes.Contains(request, []byte("INSERT")) && bytes.Contains(request, literal)
	})
	s.expire()
	select {
	case <-dropped:
	case <-time.After(bound):
		s.Fatalf("no request within %v of the lease's end", bound)
	}
	s.no(s.granted(got).Release(s.Context()))
	s.refused("an unanswered request that comes after the release of its attempt", s.b, req, backend.ErrInvalid)
	if owner, _, _ := s.stands(); owner != "" {
		s.Errorf("after the release: want nobody to hold, got %s", owner)
	}
}

func trustFromTheSend(s *stage) {
	b, p := s.distantly()
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
	counts("keeping it", g)
}

// trustOfHandOff compares what a waiter that was woken over a slow link trusts with
// what the row says.
func trustOfHandOff(s *stage) {
	b, p := s.distantly()
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
		s.Errorf("a grant that was handed over is trusted %v longer than the row says", until.Sub(end))
	}
}

// littleIsLeft gives a waiter a claim of which little is left when it looks.
func littleIsLeft(s *stage) {
	b := openRaw(s.T, s.s.URL()+"?bell=off")
	s.try()
	req := s.request()
	got := s.acquire(b, req)
	s.row("owner=?,queue='',expires="+serverNow+"+1400000", req.Owner)
	if left := time.Until(s.granted(got).Until()); left < time.Minute {
		s.Errorf("a waiter that was late to notice its turn: want a lease of an hour, %v are left", left)
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

// takenBack: what the server undoes because of other statements is sent again for as
// long as the timeout, however often that is, and then its error is told. A Lock goes
// on, as long as its TTL.
func takenBack(s *stage) {
	const times = 30
	exec(s.T, s.admin, "CREATE TABLE refusals (n INT NOT NULL) ENGINE=MyISAM", "INSERT INTO refusals VALUES (0)") // counts what is undone, too
	refuse := func(most, number int) {
		exec(s.T, s.admin, "UPDATE refusals SET n=0", "DROP TRIGGER IF EXISTS refuse",
			fmt.Sprintf("CREATE TRIGGER refuse BEFORE UPDATE ON interlock FOR EACH ROW BEGIN UPDATE refusals SET n=n+1; IF (SELECT n FROM refusals)<=%d THEN SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO=%d, MESSAGE_TEXT='taken back by the test'; END IF; END", most, number))
	}
	defer exec(s.T, s.admin, "DROP TRIGGER refuse")
	refused := func() (n int) {
		s.no(s.admin.QueryRow("SELECT n FROM refusals").Scan(&n))
		return n
	}
	patient := openRaw(s.T, suite.WithParams(s.s.URL(), map[string]string{"timeout": "1m"}))
	g, err := patient.TryAcquire(s.Context(), s.request())
	s.no(err)
	refuse(times, 1213)
	if err := g.Renew(s.Context(), time.Hour); err != nil {
		s.Errorf("a statement that the server takes back %d times: want it sent again, got %v", times, err)
	}
	s.no(g.Release(s.Context()))

	b := openRaw(s.T, suite.WithParams(s.s.URL(), map[string]string{"timeout": "3s"}))
	g, err = b.TryAcquire(s.Context(), s.request())
	s.no(err)
	refuse(1<<30, 1020)
	req, waits, got := s.request(), make(chan struct{}, 1), make(chan error, 1)
	req.OnWait = func(*backend.LockedError) { waits <- struct{}{} }
	go func() {
		_, err := b.(backend.Waiter).Acquire(s.Context(), req)
		got <- err
	}()
	more := func(what string, n int) {
		s.Helper()
		n += refused()
		eventually(s.T, what, func() bool {
			select {
			case err := <-got:
				s.Fatalf("a Lock whose statement the server takes back: want it to go on, got %v", err)
			default:
			}
			return refused() >= n
		})
	}
	more("a Lock that is refused", 1)
	var e *mysql.MySQLError
	if err := g.Renew(s.Context(), time.Hour); !errors.As(err, &e) || e.Number != 1020 {
		s.Errorf("a statement that the server takes back always: want its error 1020, got %v", err)
	}
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Renew(ctx, time.Hour) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		s.Errorf("its context is canceled: got %v", err)
	}
	more("a Lock that goes on after the timeout", 3) // its timeout began before that of the renewal
	refuse(0, 1020)
	select {
	case <-waits:
	case <-time.After(bound):
		s.Fatalf("a Lock that is refused no more: it does not wait within %v", bound)
	}
	s.no(g.Release(s.Context()))
	select {
	case err := <-got:
		s.no(err)
	case <-time.After(bound):
		s.Fatalf("not granted within %v", bound)
	}
}
