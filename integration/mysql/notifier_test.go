package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/mysql/mysqltest"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/mysqllock"
)

// TestIdleWaiters: the waiters of a process share one connection, and send nothing while
// nothing happens.
func TestIdleWaiters(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin, url := withApp(t, s)
		h, c := open(t, url), open(t, url)
		l, err := h.Mutex("idle", lock.WithTTL(10*time.Minute)).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []<-chan *lock.Lease
		for i := range 8 {
			got = append(got, waiting(t, c, "idle", i+1))
		}
		eventually(t, "one connection that waits", func() bool { return len(blocked(t, admin, "app")) == 1 })
		// waiters that polled before that connection was open poll once more
		eventually(t, "2 s without a statement of eight idle waiters", func() bool {
			before, err := mysqltest.Statements(t.Context(), admin)
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(2 * time.Second) // eight polls of each, if they polled
			after, err := mysqltest.Statements(t.Context(), admin)
			if err != nil {
				t.Fatal(err)
			}
			return after-before == 1
		})
		waits := blocked(t, admin, "app")
		if len(waits) != 1 {
			t.Fatalf("eight waiters of one process for one key: want 1 connection, got %d", len(waits))
		}
		// the packet has two statements; BenchmarkIdle measures their rate
		long := regexp.MustCompile(`^SELECT /\*\+ MAX_EXECUTION_TIME\(90000\) \*/|,90\.000\),RELEASE_LOCK`)
		if !long.MatchString(waits[0].query) {
			t.Errorf("a holder with a lease of 10 min: want a wait of 90 s, got %s", waits[0].query)
		}
		unlockInTurn(t, l, got)
	})
}

// TestKilledNotifier ends the connections that own named locks, and those that wait for
// them. The row still decides, and the waiters poll soon.
func TestKilledNotifier(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin, url := withApp(t, s)
		for _, killed := range []string{"of waiters", "all"} {
			h, c := open(t, url), open(t, url)
			l, err := h.Mutex("lost", lock.WithTTL(5*time.Minute)).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			first := waiting(t, c, "lost", 1)
			second := waiting(t, h, "lost", 2)
			eventually(t, "two connections that wait", func() bool { return len(blocked(t, admin, "app")) == 2 })
			kill := blocked(t, admin, "app")
			if killed == "all" {
				kill = threads(t, admin, "app")
			}
			for _, th := range kill {
				exec(t, admin, fmt.Sprintf("KILL %d", th.id))
			}
			token, _ := l.Token()
			if err := l.Unlock(t.Context()); err != nil {
				t.Errorf("%s: Unlock: %v", killed, err)
			}
			for i, got := range []<-chan *lock.Lease{first, second} {
				l := granted(t, fmt.Sprintf("connections killed: %s, waiter %d", killed, i), got)
				next, _ := l.Token()
				if next <= token {
					t.Errorf("token %d after %d", next, token)
				}
				token = next
				if err := l.Unlock(t.Context()); err != nil {
					t.Errorf("%s: Unlock: %v", killed, err)
				}
			}
		}
	})
}

// TestHandOverThatIsRenewed: the client that handed over does not pass on a lease that is held.
func TestHandOverThatIsRenewed(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		l, err := open(t, s.URL()).Mutex("renewed").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		first := waiting(t, open(t, s.URL()), "renewed", 1)
		second := waiting(t, open(t, s.URL()), "renewed", 2)
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		l = granted(t, "the first waiter", first)
		select {
		case <-second:
			t.Error("the second waiter was granted the lock, which was held")
		case <-time.After(4 * time.Second): // longer than a provisional lease
		}
		if err := l.Check(t.Context()); err != nil {
			t.Errorf("after the provisional TTL: %v", err)
		}
		unlockInTurn(t, l, []<-chan *lock.Lease{second})
	})
}

// TestBreakWakes breaks the lock of a holder whose connection stays open and silent, as that
// of a stopped process does. The waiter is woken.
func TestBreakWakes(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin, url := withApp(t, s)
		h, c, breaker := open(t, url), open(t, url), open(t, url)
		if _, err := h.Mutex("broken", lock.WithTTL(time.Hour), lock.WithoutRenewal()).Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := waiting(t, c, "broken", 1)
		eventually(t, "a connection that waits", func() bool { return len(blocked(t, admin, "app")) == 1 })
		if holder, err := breaker.Break(t.Context(), "broken"); err != nil || holder == nil {
			t.Fatalf("Break: %v, %v", holder, err)
		}
		if err := granted(t, "behind a broken lock", got).Unlock(t.Context()); err != nil {
			t.Errorf("Unlock: %v", err)
		}
	})
}

// TestKeep sets the end of a lease, later and sooner. The waiter gets the key at that end.
func TestKeep(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		_, url := withApp(t, s)
		b, err := suite.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close(context.Background())
		g, err := b.TryAcquire(t.Context(), backend.Request{Key: "kept", Owner: strings.Repeat("0b", 16), TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		c := open(t, url)
		got := waiting(t, c, "kept", 1)
		for _, d := range []time.Duration{2 * time.Hour, 700 * time.Millisecond} {
			if err := g.(backend.Keeper).Keep(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			if info, err := c.Inspect(t.Context(), "kept"); err != nil || info.Holder == nil || info.Holder.Left > d || info.Holder.Left < d-time.Minute {
				t.Errorf("Keep(%v): got %+v, %v", d, info.Holder, err)
			}
		}
		l := granted(t, "after the end", got)
		if err := g.(backend.Keeper).Keep(t.Context(), time.Minute); !errors.Is(err, backend.ErrLost) {
			t.Errorf("Keep of a lock with another holder: want ErrLost, got %v", err)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestAges: Inspect returns the ages of holder and waiters, by the server's clock.
func TestAges(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		_, url := withApp(t, s)
		c := open(t, url)
		start := time.Now()
		l, err := c.Mutex("aged").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := waiting(t, c, "aged", 1)
		<-time.After(50 * time.Millisecond)
		info, err := c.Inspect(t.Context(), "aged")
		most := time.Since(start) + time.Second // the two clocks may differ a little
		if err != nil || info.Holder == nil || len(info.Waiters) != 1 || info.Holder.Age < 50*time.Millisecond || info.Holder.Age > most ||
			info.Waiters[0].Age < 45*time.Millisecond || info.Waiters[0].Age > info.Holder.Age {
			t.Errorf("after 50 ms to %v: got %+v, %v", most, info, err)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := granted(t, "the waiter", got).Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestDeclaredWake: the backend declares the wake-up that its connections and server allow.
func TestDeclaredWake(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		declares := func(what string, b backend.Backend, err error, want backend.Wake) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if got := b.Capabilities().Wake; got != want {
				t.Errorf("%s: want wake=%v, got %v", what, want, got)
			}
			_ = b.Close(context.Background())
		}
		for params, want := range map[string]backend.Wake{"": backend.WakePush, "?notify=off": backend.WakePoll, "?notify_conns=1": backend.WakePush, "?pool_size=1": backend.WakePush} {
			b, err := suite.Open(t.Context(), s.URL()+params)
			declares(params, b, err, want)
		}
		for size, want := range map[int]backend.Wake{0: backend.WakePush, 1: backend.WakePoll, 3: backend.WakePoll, 4: backend.WakePush} {
			db := provision.MySQLPool(t, s, func(c *mysql.Config) { c.MultiStatements = true })
			db.SetMaxOpenConns(size)
			b, err := mysqllock.New(db)
			declares(fmt.Sprintf("a pool of %d", size), b, err, want)
			b, err = mysqllock.New(db, mysqllock.WithNotifyConns(0))
			declares("WithNotifyConns(0)", b, err, backend.WakePoll)
		}
		b, err := mysqllock.New(provision.MySQLPool(t, s, nil))
		declares("one statement in a packet", b, err, backend.WakePoll)
		if s.Flavour == provision.MySQL9 {
			exec(t, provision.MySQLPool(t, s, nil), "INSTALL PLUGIN group_replication SONAME 'group_replication.so'", "SET GLOBAL group_replication_group_name='aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa'")
			b, err := suite.Open(t.Context(), s.URL())
			declares("group replication", b, err, backend.WakePoll)
		}
	})
}

// TestNotifyConns waits for more keys than the driver may use connections for, in a pool of
// the application.
func TestNotifyConns(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin, _ := withApp(t, s)
		db := provision.MySQLPool(t, s, func(c *mysql.Config) { c.User, c.Passwd, c.MultiStatements = "app", "s3cret", true })
		db.SetMaxOpenConns(8)
		c := over(t, db)
		const keys = 6
		var held []*lock.Lease
		var got []<-chan *lock.Lease
		for i := range keys {
			l, err := c.Mutex(fmt.Sprint("key-", i), lock.WithTTL(5*time.Minute)).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, l)
			got = append(got, waiting(t, c, fmt.Sprint("key-", i), 1))
		}
		n := 0
		eventually(t, "a connection that waits", func() bool { n = len(blocked(t, admin, "app")); return n > 0 })
		if n > 2 {
			t.Errorf("want 1 or 2 connections of 8 that wait, got %d", n)
		}
		for i := range keys {
			if err := held[i].Unlock(t.Context()); err != nil {
				t.Error(err)
			}
			if err := granted(t, fmt.Sprint("key ", i), got[i]).Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestClose: a closed driver leaves no connection open, and no connection of the
// application's pool waits for a named lock.
func TestClose(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin, url := withApp(t, s)
		db := provision.MySQLPool(t, s, func(c *mysql.Config) { c.User, c.Passwd, c.MultiStatements = "app", "s3cret", true })
		for _, own := range []bool{true, false} {
			c, err := lock.Open(t.Context(), url)
			if !own {
				var b *mysqllock.Backend
				if b, err = mysqllock.New(db); err == nil {
					c, err = lock.New(b)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Mutex("closed").Lock(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			end := make(chan error, 1)
			go func() { _, err := c.Mutex("closed").Lock(ctx); end <- err }()
			eventually(t, "a connection that waits", func() bool { return len(blocked(t, admin, "app")) == 1 })
			if err := c.Close(t.Context()); err != nil {
				t.Errorf("Close: %v", err)
			}
			if err := <-end; !errors.Is(err, lock.ErrClosed) {
				t.Errorf("a wait at Close: want ErrClosed, got %v", err)
			}
			cancel()
			if own {
				eventually(t, "no connection left", func() bool { return len(threads(t, admin, "app")) == 0 })
			}
			eventually(t, "no connection that waits", func() bool { return len(blocked(t, admin, "app")) == 0 })
		}
	})
}
