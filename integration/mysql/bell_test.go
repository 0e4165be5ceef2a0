package mysql_test

import (
	"context"
	"database/sql"
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

// bound is far above what anything takes, and far below the leases of these tests.
const bound = 20 * time.Second

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(bound)
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, bound)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// thread is a connection as the server sees it.
type thread struct {
	id    int64
	state string
	query string
}

func threads(t *testing.T, admin *sql.DB, user string) []thread {
	t.Helper()
	rows, err := admin.Query("SELECT id, COALESCE(state,''), COALESCE(info,'') FROM information_schema.processlist WHERE user=?", user)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []thread
	for rows.Next() {
		var th thread
		if err := rows.Scan(&th.id, &th.state, &th.query); err != nil {
			t.Fatal(err)
		}
		all = append(all, th)
	}
	return all
}

// blocked are those that wait for a named lock.
func blocked(t *testing.T, admin *sql.DB, user string) []thread {
	var some []thread
	for _, th := range threads(t, admin, user) {
		if th.state == "User lock" {
			some = append(some, th)
		}
	}
	return some
}

// waiting starts a Lock and returns when it is in the queue.
func waiting(t *testing.T, c *lock.Client, name string, place int) <-chan *lock.Lease {
	t.Helper()
	got := make(chan *lock.Lease, 1)
	go func() {
		l, err := c.Mutex(name, lock.WithTTL(5*time.Minute)).Lock(t.Context())
		if err != nil && t.Context().Err() == nil {
			t.Errorf("a waiter: %v", err)
		}
		got <- l
	}()
	eventually(t, fmt.Sprintf("waiter %d in the queue", place), func() bool {
		info, err := c.Inspect(t.Context(), name)
		return err == nil && len(info.Waiters) >= place
	})
	return got
}

func granted(t *testing.T, what string, got <-chan *lock.Lease) *lock.Lease {
	t.Helper()
	select {
	case l := <-got:
		if l == nil {
			t.FailNow()
		}
		return l
	case <-time.After(bound):
		t.Fatalf("%s: no grant within %v", what, bound)
	}
	return nil
}

// withApp makes a user of the driver's, so that its connections are told from those
// of the tests.
func withApp(t *testing.T, s *provision.Server) (admin *sql.DB, url string) {
	admin = provision.MySQLPool(t, s, nil)
	exec(t, admin, "CREATE USER app@'%' IDENTIFIED BY 's3cret'", "GRANT CREATE, SELECT, INSERT, UPDATE ON locks.* TO app@'%'")
	return admin, as(s, "app", "s3cret", nil)
}

// TestIdleWaiters wants those who wait to send nothing while nothing happens, and to
// share one connection.
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
		// those who looked before that connection was there do so once more
		eventually(t, "2 s without a statement of eight idle waiters", func() bool {
			before, err := mysqltest.Statements(t.Context(), admin)
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(2 * time.Second) // eight polls of each, if they did
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
		// the packet has two statements; BenchmarkIdle measures what they come to
		long := regexp.MustCompile(`^SELECT /\*\+ MAX_EXECUTION_TIME\(90000\) \*/|,90\.000\),RELEASE_LOCK`)
		if !long.MatchString(waits[0].query) {
			t.Errorf("a holder with a lease of 10 min: want it waited for, for 90 s, got %s", waits[0].query)
		}
		for i, ch := range got {
			if err := l.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			l = granted(t, fmt.Sprintf("waiter %d", i), ch)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestLostBell ends the connections that have the names, and those that wait for
// them. The row still says who holds, and whoever waits looks soon.
func TestLostBell(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin, url := withApp(t, s)
		for _, what := range []string{"of those who wait", "all"} {
			h, c := open(t, url), open(t, url)
			l, err := h.Mutex("lost", lock.WithTTL(5*time.Minute)).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			first := waiting(t, c, "lost", 1)
			second := waiting(t, h, "lost", 2)
			eventually(t, "two connections that wait", func() bool { return len(blocked(t, admin, "app")) == 2 })
			kill := blocked(t, admin, "app")
			if what == "all" {
				kill = threads(t, admin, "app")
			}
			for _, th := range kill {
				exec(t, admin, fmt.Sprintf("KILL %d", th.id))
			}
			token, _ := l.Token()
			if err := l.Unlock(t.Context()); err != nil {
				t.Errorf("%s: Unlock: %v", what, err)
			}
			for i, got := range []<-chan *lock.Lease{first, second} {
				l := granted(t, fmt.Sprintf("connections %s killed, waiter %d", what, i), got)
				next, _ := l.Token()
				if next <= token {
					t.Errorf("token %d after %d", next, token)
				}
				token = next
				if err := l.Unlock(t.Context()); err != nil {
					t.Errorf("%s: Unlock: %v", what, err)
				}
			}
		}
	})
}

// TestBreakWakes breaks the lock of a holder that is stopped, as far as its bell is
// concerned: its connection stays open and silent.
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

// TestKeep sets the end of a lease, later and sooner, and wants those who wait to
// know of it.
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
		l := granted(t, "after what was kept", got)
		if err := g.(backend.Keeper).Keep(t.Context(), time.Minute); !errors.Is(err, backend.ErrLost) {
			t.Errorf("Keep of a lock that is another's: want ErrLost, got %v", err)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestAges wants Inspect to tell for how long, by the server's clock.
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
		most := time.Since(start) + time.Second // the server's clock may be read a little otherwise
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

// TestBellOrPoll wants the way of waking declared as it is.
func TestBellOrPoll(t *testing.T) {
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
		for params, want := range map[string]backend.Wake{"": backend.WakePush, "?bell=off": backend.WakePoll, "?bell_size=1": backend.WakePush, "?pool_size=1": backend.WakePush} {
			b, err := suite.Open(t.Context(), s.URL()+params)
			declares(params, b, err, want)
		}
		for size, want := range map[int]backend.Wake{0: backend.WakePush, 1: backend.WakePoll, 3: backend.WakePoll, 4: backend.WakePush} {
			db := provision.MySQLPool(t, s, func(c *mysql.Config) { c.MultiStatements = true })
			db.SetMaxOpenConns(size)
			b, err := mysqllock.New(db)
			declares(fmt.Sprintf("a pool of %d", size), b, err, want)
			b, err = mysqllock.New(db, mysqllock.WithBell(0))
			declares("WithBell(0)", b, err, backend.WakePoll)
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

// TestBellSize waits for more keys than there may be connections for, in a pool that
// is not the driver's.
func TestBellSize(t *testing.T) {
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

// TestClose wants no connection left of a driver that was closed, and those of a
// pool that was given to it without any name.
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
			eventually(t, "nobody waits", func() bool { return len(blocked(t, admin, "app")) == 0 })
		}
	})
}
