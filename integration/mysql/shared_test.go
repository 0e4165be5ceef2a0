package mysql_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/mysqllock"
)

// TestShares tests what the suite cannot reach: the rows of shared holders at the moments between
// two transactions, and rows that processes left which have ended.
func TestShares(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin := provision.MySQLPool(t, s, nil)
		b := openRaw(t, s.URL())
		for name, f := range map[string]func(*stage){
			"slots": lowestSlots, "many permits": manyPermits, "dead readers": deadReaders, "late share": lateShare, "abandoned share": abandonedShare,
			"renewed while a writer looks": renewedWhileWriterLooks, "guard of a reader": guardOfReader, "unanswered downgrade": unansweredDowngrade,
			"batch": batchOfShares, "expired share": expiredShare, "swept": sweptShares,
		} {
			t.Run(name, func(t *testing.T) {
				f(&stage{t, s, admin, b, strings.ReplaceAll(name, " ", "-")})
			})
		}
	})
}

// TestUpgrade: the statement of the documentation makes a table of schema 3 one of schema 4, and tokens
// go on rising.
func TestUpgrade(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin := provision.MySQLPool(t, s, nil)
		schema, err := mysqllock.Schema("interlock")
		if err != nil {
			t.Fatal(err)
		}
		var older []string
		for line := range strings.Lines(strings.Replace(schema, "schema 4", "schema 3", 1)) {
			if column := strings.Fields(line)[0]; !slices.Contains([]string{"shares", "weight", "capacity", "slots"}, column) {
				older = append(older, line)
			}
		}
		const token = 1 << 60
		exec(t, admin, strings.Join(older, ""), fmt.Sprintf("INSERT INTO interlock (name,place,token) VALUES ('lock:upgraded',0,%d)", token))
		refused(t, "schema 3", s.URL(), `schema "3"`, "wants 4")
		page, err := os.ReadFile("../../docs/backends/mysql.md")
		if err != nil {
			t.Fatal(err)
		}
		_, alter, _ := strings.Cut(string(page), "ALTER TABLE")
		alter, _, _ = strings.Cut(alter, ";")
		exec(t, admin, "ALTER TABLE"+alter)
		c := open(t, s.URL())
		for _, m := range []lock.Mutex{c.Mutex("upgraded"), c.RWMutex("upgraded").RLocker(), c.Semaphore("upgraded", 3).Weighted(2)} {
			l, err := m.Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if n, _ := l.Token(); n <= token {
				t.Errorf("token after the upgrade: want more than %d, got %d", token, n)
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func (s *stage) share(weight, capacity int) backend.Request {
	req := s.request()
	req.Share = backend.Share{Weight: weight, Capacity: capacity}
	return req
}

func (s *stage) tryShare(weight, capacity int) backend.Grant {
	s.Helper()
	g, err := s.b.TryAcquire(s.Context(), s.share(weight, capacity))
	s.no(err)
	return g
}

func (s *stage) wantSlots(g backend.Grant, want ...int) {
	s.Helper()
	if got := g.(backend.SlotHolder).Slots(); !slices.Equal(got, want) {
		s.Errorf("slots: want %v, got %v", want, got)
	}
}

// setShare updates the row of a shared holder.
func (s *stage) setShare(g backend.Grant, set string) {
	s.Helper()
	if !updates(s.T, s.admin, "UPDATE interlock SET ttl=ttl+1,"+set+" WHERE name=? AND place>0 AND token=?", s.name(), g.Token()) {
		s.Fatalf("set %s: no such row", set)
	}
}

// rows returns the number of rows of the key but that of the lock and tombstones.
func (s *stage) rows() (n int) {
	s.Helper()
	s.no(s.admin.QueryRow("SELECT COUNT(*) FROM interlock WHERE name=? AND place>0", s.name()).Scan(&n))
	return n
}

func lowestSlots(s *stage) {
	a, b, c := s.tryShare(2, 8), s.tryShare(1, 8), s.tryShare(3, 8)
	s.wantSlots(a, 0, 1)
	s.wantSlots(b, 2)
	s.wantSlots(c, 3, 4, 5)
	s.no(a.Release(s.Context()))
	d := s.tryShare(3, 8)
	s.wantSlots(d, 0, 1, 6)
	waits := s.acquire(s.b, s.share(2, 8))
	s.refused("a permit that is free, behind a waiter", s.b, s.share(1, 8), backend.ErrLocked)
	s.setShare(b, "expires="+serverNow+"-1000000") // its slot, 2, is found free by the client that ends it
	e := s.granted(waits)
	s.wantSlots(e, 2, 7)
	for _, g := range []backend.Grant{c, d, e} {
		s.no(g.Release(s.Context()))
	}
	f := s.tryShare(1024, 1024)
	if got := f.(backend.SlotHolder).Slots(); len(got) != 1024 || got[1023] != 1023 {
		s.Errorf("slots: want 0 to 1023, got %d, the last is %d", len(got), got[len(got)-1])
	}
	s.no(f.Release(s.Context()))
}

// manyPermits: one release grants permits to more waiters than one packet considers.
func manyPermits(s *stage) {
	g := s.try()
	var waits []<-chan backend.Grant
	for range 150 {
		waits = append(waits, s.claim(s.acquire(s.b, s.share(1, 200))))
	}
	s.no(g.Release(s.Context()))
	var last uint64
	for i, w := range waits {
		g := s.granted(w)
		s.wantSlots(g, i)
		if g.Token() <= last {
			s.Errorf("token %d: want more than %d, got %d", i, last, g.Token())
		}
		last = g.Token()
		defer func() { s.no(g.Release(s.Context())) }()
	}
}

// deadReaders: the waiters of processes that have ended delay a writer behind them by one provisional
// TTL, also if there are some between it and the first.
func deadReaders(s *stage) {
	g := s.try()
	for i, process := range []string{"dead1", "dead2", "dead1"} {
		req := s.enqueue()
		exec(s.T, s.admin, fmt.Sprintf("UPDATE interlock SET process='%s',weight=%d WHERE owner='%s'", process, (i+2)/2%2, req.Owner))
	}
	s.row("shares=1,capacity=0")
	begun := time.Now()
	waits := s.acquire(openRaw(s.T, s.s.URL()), s.request())
	s.no(g.Release(s.Context()))
	w := s.granted(waits)
	if d := time.Since(begun); d < 2*time.Second || d > 6*time.Second {
		s.Errorf("a writer behind readers of two processes that have ended: want it granted after 3s, got %v", d)
	}
	if n := s.rows(); n != 0 {
		s.Errorf("want no row of a dead process left, got %d", n)
	}
	s.no(w.Release(s.Context()))
}

// lateShare: a request that arrives after its attempt was abandoned is refused, also if it was granted
// and abandoned before.
func lateShare(s *stage) {
	for _, share := range []backend.Share{backend.Reader, {Weight: 1, Capacity: 2}} {
		req := s.request()
		req.Share = share
		_, err := s.b.TryAcquire(s.Context(), req)
		s.no(err)
		s.no(s.b.Abandon(s.Context(), req))
		s.refused("a late request", s.b, req, backend.ErrInvalid)
		if n := s.rows(); n != 0 {
			s.Errorf("rows after an abandoned attempt: want none, got %d", n)
		}
	}
	s.no(s.try().Release(s.Context()))
}

// abandonedShare: a waiter is abandoned after it was granted its share, which it does not know.
func abandonedShare(s *stage) {
	g := s.try()
	other := openRaw(s.T, s.s.URL()+"?notify=off")
	req := s.share(1, 1)
	ctx, cancel := context.WithCancel(s.Context())
	waits, ended := make(chan struct{}, 1), make(chan error, 1)
	req.OnWait = func(*backend.LockedError) { waits <- struct{}{} }
	go func() {
		_, err := other.(backend.Waiter).Acquire(ctx, req)
		ended <- err
	}()
	<-waits
	exec(s.T, s.admin, fmt.Sprintf("UPDATE interlock SET process='%s' WHERE owner='%s'", "elsewhere", req.Owner)) // its reads do not show its grant
	next := s.acquire(s.b, s.share(1, 1))
	s.no(g.Release(s.Context()))
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, backend.ErrUncertain) { // nil: it asked before it was cancelled
		s.Errorf("a cancelled waiter: want ErrUncertain or a grant, got %v", err)
	}
	s.no(other.Abandon(s.Context(), req))
	begun := time.Now()
	n := s.granted(next)
	if d := time.Since(begun); d > 2*time.Second {
		s.Errorf("the waiter behind an abandoned share: want it granted at once, got %v", d)
	}
	s.wantSlots(n, 0)
	s.no(n.Release(s.Context()))
}

// renewedWhileWriterLooks: a renewal that began before the end of a lease is committed while a writer
// finds it expired. The reader keeps its share.
func renewedWhileWriterLooks(s *stage) {
	g := s.tryShare(1, 0)
	s.setShare(g, "expires="+serverNow+"+300000")
	tx, err := s.admin.Begin()
	s.no(err)
	_, err = tx.Exec("UPDATE interlock SET expires="+serverNow+"+60000000 WHERE name=? AND token=? AND place>0", s.name(), g.Token())
	s.no(err)
	time.Sleep(500 * time.Millisecond) // the lease that others see has expired
	ended := make(chan error, 1)
	go func() {
		_, err := s.b.TryAcquire(s.Context(), s.request())
		ended <- err
	}()
	time.Sleep(300 * time.Millisecond)
	s.no(tx.Commit())
	if err := <-ended; !errors.Is(err, backend.ErrLocked) {
		s.Errorf("a writer beside a reader whose renewal was not committed: want ErrLocked, got %v", err)
	}
	s.no(g.Renew(s.Context(), time.Minute))
	s.no(g.Release(s.Context()))
	s.no(s.try().Release(s.Context()))
}

// guardOfReader: while a transaction guards a reader, other readers come, renew and go; no writer
// gets the lock, and the reader is not broken before the end of the transaction.
func guardOfReader(s *stage) {
	b := s.b.(*mysqllock.Backend)
	g, other := s.tryShare(1, 0), s.tryShare(1, 0)
	tx, err := s.admin.Begin()
	s.no(err)
	defer func() { _ = tx.Rollback() }()
	s.no(b.Guard(s.Context(), tx, s.key, g.Token()))
	begun := time.Now()
	s.no(other.Renew(s.Context(), time.Minute))
	third := s.tryShare(1, 0)
	s.no(third.Release(s.Context()))
	s.no(other.Release(s.Context()))
	s.refused("a writer beside a guarded reader", s.b, s.request(), backend.ErrLocked)
	if d := time.Since(begun); d > time.Second {
		s.Errorf("readers beside a guarded one: want that they do not wait, they took %v", d)
	}
	broken := make(chan error, 1)
	go func() {
		_, err := b.Break(s.Context(), s.key, "")
		broken <- err
	}()
	select {
	case err := <-broken:
		s.Errorf("Break of a guarded reader: want it to wait for the transaction, got %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	s.no(tx.Commit())
	s.no(<-broken)
	tx, err = s.admin.Begin()
	s.no(err)
	s.lost("Guard of a broken reader", b.Guard(s.Context(), tx, s.key, g.Token()))
	s.no(tx.Rollback())

	// A transaction whose snapshot is older than the lease.
	tx, err = s.admin.Begin()
	s.no(err)
	_, err = tx.Exec("SELECT COUNT(*) FROM interlock")
	s.no(err)
	g = s.tryShare(1, 0)
	var changed *mysql.MySQLError
	if err := b.Guard(s.Context(), tx, s.key, g.Token()); err != nil && (!errors.As(err, &changed) || changed.Number != 1020) { // MariaDB with innodb_snapshot_isolation
		s.Error(err)
	}
	s.no(tx.Rollback())
	s.no(g.Release(s.Context()))
}

// unansweredDowngrade: the grant renews and releases the row that it has now.
func unansweredDowngrade(s *stage) {
	proxied, p := s.behindProxy("?timeout=500ms&notify=off")
	beside := s.request()
	beside.Key += "-beside"
	other, err := proxied.TryAcquire(s.Context(), beside)
	s.no(err)
	for _, renews := range []bool{true, false} {
		g, err := proxied.TryAcquire(s.Context(), s.request())
		s.no(err)
		p.DropReply(func(request []byte) bool { return bytes.Contains(request, []byte("SET shares=1,capacity=0")) })
		if err := g.(backend.Downgrader).Downgrade(s.Context()); !errors.Is(err, backend.ErrUncertain) {
			s.Errorf("Downgrade without an answer: want ErrUncertain, got %v", err)
		}
		if renews {
			s.no(g.Renew(s.Context(), time.Minute))
			all := []backend.Renewal{{Grant: g, TTL: time.Minute}, {Grant: other, TTL: time.Minute}}
			for _, err := range proxied.(backend.BatchRenewer).RenewBatch(s.Context(), all) {
				s.no(err)
			}
			s.no(g.(backend.Downgrader).Downgrade(s.Context()))
		}
		var r backend.Grant
		eventually(s.T, "a reader beside the one that was a writer", func() bool { // the server may execute the packet still
			r, err = s.b.TryAcquire(s.Context(), s.share(1, 0))
			return err == nil
		})
		s.no(r.Release(s.Context()))
		s.no(g.Release(s.Context()))
		s.no(s.try().Release(s.Context()))
	}
}

// batchOfShares: one batch renews the rows of locks and of shared holders.
func batchOfShares(s *stage) {
	all := []backend.Renewal{{Grant: s.tryShare(1, 0), TTL: time.Minute}, {Grant: s.tryShare(1, 0), TTL: time.Minute}}
	b := *s
	b.key += "-exclusive"
	all = append(all, backend.Renewal{Grant: b.try(), TTL: time.Minute})
	lost := s.tryShare(1, 0)
	s.setShare(lost, "expires=1")
	all = append(all, backend.Renewal{Grant: lost, TTL: time.Minute})
	for i, err := range s.b.(backend.BatchRenewer).RenewBatch(s.Context(), all) {
		if want := i == 3; want != errors.Is(err, backend.ErrLost) || !want && err != nil {
			s.Errorf("renewal %d: want lost %v, got %v", i, want, err)
		}
	}
	for _, r := range all[:3] {
		s.no(r.Grant.Release(s.Context()))
	}
}

func expiredShare(s *stage) {
	g, keeps := s.tryShare(1, 2), s.tryShare(1, 2)
	s.setShare(g, "expires="+serverNow+"-1000000")
	s.lost("Renew of an expired share", g.Renew(s.Context(), time.Hour))
	s.lost("Keep of an expired share", g.(backend.Keeper).Keep(s.Context(), time.Hour))
	s.lost("Release of an expired share", g.Release(s.Context()))
	next := s.tryShare(1, 2)
	s.wantSlots(next, 0)
	s.refused("a third permit", s.b, s.share(1, 2), backend.ErrLocked)
	s.refused("another capacity", s.b, s.share(1, 0), backend.ErrInvalid)
	s.setShare(keeps, "expires=1")
	s.setShare(next, "expires=1")
	r := s.tryShare(1, 0) // all permits have expired
	s.no(r.Release(s.Context()))
}

// sweptShares: a lock whose readers have expired is unused.
func sweptShares(s *stage) {
	g := s.tryShare(1, 0)
	old := "granted=" + serverNow + "-7200000000,expires=" + serverNow + "-7200000000"
	s.setShare(g, old)
	s.row("granted=" + serverNow + "-7200000000")
	if _, err := s.b.(*mysqllock.Backend).Sweep(s.Context(), time.Hour); err != nil {
		s.Fatal(err)
	}
	var n int
	s.no(s.admin.QueryRow("SELECT COUNT(*) FROM interlock WHERE name=?", s.name()).Scan(&n))
	if n != 0 {
		s.Errorf("rows of a lock whose reader expired two hours ago: want none, got %d", n)
	}
}
