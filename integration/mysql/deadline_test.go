package mysql_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/mysql/mysqltest"
	"github.com/interlock-go/lock/integration/provision"
)

// longer is longer than the deadline that a share sets for the first waiter, and shorter than two.
const longer = backend.MaxProvisionalTTL + 1500*time.Millisecond

// TestDeadline: waiters beside shared holders that are alive keep their places, those of processes that are dead or
// stopped lose them, and what that costs.
func TestDeadline(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin := provision.MySQLPool(t, s, nil)
		b := openRaw(t, s.URL())
		run := func(name string, f func(*stage)) {
			t.Run(name, func(t *testing.T) { f(&stage{t, s, admin, b, strings.ReplaceAll(name, " ", "-")}) })
		}
		run("cost", costOfDeadlines) // it counts the statements of the server
		t.Run("places", func(t *testing.T) {
			for name, f := range map[string]func(*stage){
				"overdue": overdue, "exclusive holder": overdueBesideExclusive, "own process": ownDeadline, "no queue": overdueWithoutQueue,
				"first by a release": firstByRelease, "first by a downgrade": firstByDowngrade, "first by a removal": firstByRemoval,
				"stopped before": stoppedBefore,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					f(&stage{t, s, admin, openRaw(t, s.URL()), strings.ReplaceAll(name, " ", "-")})
				})
			}
		})
		mysqltest.NoDeadlocks(t, admin)
	})
}

// place returns the place of a waiter in the queue, or 0, and its deadline.
func (s *stage) place(req backend.Request) (place, deadline int64) {
	s.Helper()
	s.no(s.admin.QueryRow("SELECT COALESCE(MAX(place),0),COALESCE(MAX(expires),0) FROM interlock WHERE name=? AND place BETWEEN 1 AND 1<<62 AND owner=?", s.name(), req.Owner).Scan(&place, &deadline))
	return place, deadline
}

// keeps checks that a waiter is in its place after d.
func (s *stage) keeps(what string, req backend.Request, d time.Duration) {
	s.Helper()
	before, _ := s.place(req)
	time.Sleep(d)
	if after, _ := s.place(req); before == 0 || after != before {
		s.Errorf("%s: want its place %d after %v, got %d", what, before, d, after)
	}
}

// costOfDeadlines counts statements. The first waiter reads its row each second, with two, and clears a deadline with
// two more. A share behind it sets one every three seconds, with four. Behind an exclusive holder none is sent.
func costOfDeadlines(s *stage) {
	other := openRaw(s.T, s.s.URL())
	const seconds = 4
	statements := func(what string, most int64) {
		s.Helper()
		time.Sleep(time.Second) // the waiters have read what they wait for
		before, err := mysqltest.Statements(s.Context(), s.admin)
		s.no(err)
		time.Sleep(seconds * time.Second)
		after, err := mysqltest.Statements(s.Context(), s.admin)
		s.no(err)
		s.Logf("%s: %d statements in %d seconds", what, after-before-1, seconds)
		if after-before-1 > most {
			s.Errorf("%s: want at most %d statements in %d seconds, got %d", what, most, seconds, after-before-1)
		}
	}
	reader := s.tryShare(1, 0)
	writer := s.acquire(s.b, s.request())
	statements("a writer behind a reader", 2*seconds+2)
	share := s.acquire(other, s.share(1, 0))
	statements("and a reader behind that", 2*seconds+2+(2+4)*(seconds/3+1))
	s.no(reader.Release(s.Context()))
	held := s.granted(writer)
	s.no(held.Renew(s.Context(), time.Hour))
	next := s.acquire(other, s.request())
	time.Sleep(backend.MaxProvisionalTTL) // after which the client that handed over looks at the lock
	statements("a reader and a writer behind a writer", 0)
	s.no(held.Release(s.Context()))
	s.no(s.granted(share).Release(s.Context()))
	s.no(s.granted(next).Release(s.Context()))
}

// overdue: a deadline that has passed removes all waiters of the process, one that has not removes none.
func overdue(s *stage) {
	reader := s.tryShare(1, 0)
	dead, alive, also := s.enqueue(), s.enqueue(), s.enqueue()
	set := func(req backend.Request, columns string) {
		exec(s.T, s.admin, fmt.Sprintf("UPDATE interlock SET %s WHERE name='%s' AND owner='%s'", columns, s.name(), req.Owner))
	}
	set(alive, "process='alive',expires=1") // it is not the first
	for _, c := range []struct {
		columns string
		first   bool // the first waiter keeps its place
	}{{"expires=0", true}, {"expires=" + serverNow + "+60000000", true}, {"expires=1", false}} {
		set(dead, c.columns)
		s.refused("a writer beside a reader", s.b, s.request(), backend.ErrLocked) // it ends what has expired
		for i, req := range []backend.Request{dead, also, alive} {
			if place, _ := s.place(req); place > 0 != (c.first || i == 2) {
				s.Errorf("%s: waiter %d: place %d", c.columns, i, place)
			}
		}
	}
	s.no(reader.Release(s.Context()))
}

// overdueBesideExclusive: a waiter beside an exclusive holder does not read its row, so it is not removed.
func overdueBesideExclusive(s *stage) {
	s.try()
	first := s.enqueue()
	exec(s.T, s.admin, fmt.Sprintf("UPDATE interlock SET expires=1 WHERE name='%s' AND owner='%s'", s.name(), first.Owner))
	s.row("shares=1")
	s.expire()
	s.refused("a free lock with a waiter", s.b, s.request(), backend.ErrLocked)
	if owner, _, _ := s.read(); owner != first.Owner {
		s.Errorf("owner: want the first waiter, got %q", owner)
	}
}

// ownDeadline: a process sets no deadline for its own waiters, whether it has had the answer to their request or not.
func ownDeadline(s *stage) {
	reader, own := s.tryShare(1, 0), s.enqueue()
	exec(s.T, s.admin, fmt.Sprintf("UPDATE interlock w JOIN interlock h USING (name) SET w.process=h.process WHERE name='%s' AND w.owner='%s' AND h.place>1<<62", s.name(), own.Owner))
	s.refused("a reader behind a writer", s.b, s.share(1, 0), backend.ErrLocked)
	time.Sleep(200 * time.Millisecond) // it would be set in the background
	if _, deadline := s.place(own); deadline != 0 {
		s.Errorf("want no deadline, got %d", deadline)
	}
	s.no(reader.Release(s.Context()))
}

// overdueWithoutQueue: TryAcquire of a share sets a deadline, too, and gets the lock when it has passed.
func overdueWithoutQueue(s *stage) {
	reader, dead := s.tryShare(1, 0), s.enqueue()
	s.refused("a reader behind a writer", s.b, s.share(1, 0), backend.ErrLocked)
	var deadline int64
	eventually(s.T, "a deadline", func() bool { _, deadline = s.place(dead); return deadline > 0 })
	s.refused("a reader behind a writer with a deadline", s.b, s.share(1, 0), backend.ErrLocked)
	if _, again := s.place(dead); again != deadline {
		s.Errorf("want the deadline %d unchanged, got %d", deadline, again)
	}
	exec(s.T, s.admin, fmt.Sprintf("UPDATE interlock SET expires=1 WHERE name='%s' AND owner='%s'", s.name(), dead.Owner))
	s.no(s.tryShare(1, 0).Release(s.Context()))
	s.no(reader.Release(s.Context()))
}

// firstByRelease: a writer becomes the first waiter beside readers when a release admits the readers ahead of it.
func firstByRelease(s *stage) {
	held, writer := s.try(), s.request()
	reader := s.acquire(s.b, s.share(1, 0))
	got := s.acquire(openRaw(s.T, s.s.URL()), writer)
	s.no(held.Release(s.Context()))
	r := s.granted(reader)
	s.no(r.Renew(s.Context(), time.Hour))
	next := s.acquire(s.b, s.share(1, 0))
	s.keeps("a writer behind a reader", writer, longer)
	s.no(r.Release(s.Context()))
	s.no(s.granted(got).Release(s.Context()))
	s.no(s.granted(next).Release(s.Context()))
}

func firstByDowngrade(s *stage) {
	held, writer := s.try(), s.request()
	got := s.acquire(openRaw(s.T, s.s.URL()), writer)
	time.Sleep(500 * time.Millisecond) // it blocks in the server
	s.no(held.(backend.Downgrader).Downgrade(s.Context()))
	next := s.acquire(s.b, s.share(1, 0))
	s.keeps("a writer behind one that became a reader", writer, longer)
	s.no(held.Release(s.Context()))
	s.no(s.granted(got).Release(s.Context()))
	s.no(s.granted(next).Release(s.Context()))
}

// stopped returns a backend whose connections stay open at the server and get no answer after stop, like those of a
// process that was stopped, until goOn.
func (s *stage) stopped() (b backend.Backend, stop, goOn func()) {
	b, p := s.behindProxy("?timeout=1m")
	return b, p.Stall, func() { s.no(p.Heal()) }
}

// firstByRemoval: a writer behind one that is stopped wakes when that has been removed.
func firstByRemoval(s *stage) {
	dead, stop, goOn := s.stopped()
	reader, writer := s.tryShare(1, 0), s.request()
	again := s.acquire(dead, s.request())
	got := s.acquire(openRaw(s.T, s.s.URL()), writer)
	time.Sleep(500 * time.Millisecond) // both block in the server
	stop()
	next := s.acquire(s.b, s.share(1, 0))
	s.keeps("a writer behind a stopped one", writer, 2*longer)
	goOn()
	s.no(reader.Release(s.Context()))
	for _, waiter := range []<-chan backend.Grant{got, next, again} {
		s.no(s.granted(waiter).Release(s.Context()))
	}
}

// stoppedBefore: a writer is stopped, and a reader waits behind it, before a release admits the readers ahead of them.
// When the process goes on, its waiter is in the queue again.
func stoppedBefore(s *stage) {
	dead, stop, goOn := s.stopped()
	held, writer := s.try(), s.request()
	reader := s.acquire(s.b, s.share(1, 0))
	gotWriter := s.acquire(dead, writer)
	got := s.acquire(openRaw(s.T, s.s.URL()), s.share(1, 0))
	time.Sleep(500 * time.Millisecond)
	stop()
	s.no(held.Release(s.Context()))
	begun := time.Now()
	r := s.granted(reader)
	s.no(r.Renew(s.Context(), time.Hour))
	behind := s.granted(got)
	if d := time.Since(begun); d < 2*time.Second || d > 8*time.Second {
		s.Errorf("a reader behind a stopped writer: want it granted after 3s, got %v", d)
	}
	s.no(behind.Renew(s.Context(), time.Hour))
	if place, _ := s.place(writer); place != 0 {
		s.Error("want the stopped writer removed")
	}
	goOn()
	eventually(s.T, "the writer in the queue again", func() bool { place, _ := s.place(writer); return place > 0 })
	s.no(behind.Release(s.Context()))
	s.no(r.Release(s.Context()))
	s.no(s.granted(gotWriter).Release(s.Context()))
}
