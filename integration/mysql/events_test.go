package mysql_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/mysqllock"
)

// TestWake: what the driver declares, and that waiters are served in each case.
func TestWake(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		pool := func(conns int) func() (backend.Backend, error) {
			return func() (backend.Backend, error) {
				db := provision.MySQLPool(t, s, nil)
				db.SetMaxOpenConns(conns)
				return mysqllock.New(db)
			}
		}
		byURL := func(params string) func() (backend.Backend, error) {
			return func() (backend.Backend, error) { return suite.Open(t.Context(), s.URL()+params) }
		}
		for what, c := range map[string]struct {
			open func() (backend.Backend, error)
			want backend.Wake
		}{
			"URL": {byURL(""), backend.WakePush}, "pool_size=1": {byURL("?pool_size=1"), backend.WakePush},
			"notify=off": {byURL("?notify=off"), backend.WakePoll}, "a pool of 4": {pool(4), backend.WakePush},
			"a pool of 3": {pool(3), backend.WakePoll}, "a pool of 1": {pool(1), backend.WakePoll},
		} {
			b, err := c.open()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if caps := b.Capabilities(); caps.Wake != c.want || caps.PushesLoss != (c.want == backend.WakePush) {
				t.Errorf("%s: wake %v, pushes loss %v; want %v", what, caps.Wake, caps.PushesLoss, c.want)
			}
			client, err := lock.New(b)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close(t.Context()) })
			l, err := client.Mutex(what).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			unlockInTurn(t, l, []<-chan *lock.Lease{waiting(t, client, what, 1), waiting(t, open(t, s.URL()), what, 2)})
		}
	})
}

// TestEventsAreDeleted: a process deletes the events that it has read, and its connection does not wake without need.
func TestEventsAreDeleted(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin := provision.MySQLPool(t, s, nil)
		a, b := open(t, s.URL()), open(t, s.URL())
		for range 20 {
			l, err := a.Mutex("k").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			unlockInTurn(t, l, []<-chan *lock.Lease{waiting(t, b, "k", 1)})
		}
		eventually(t, "no event is left", func() bool { return count(t, admin, "interlock_events", "TRUE") == 0 })
	})
}

// TestEventOfOpenTransaction: an event whose transaction has not ended delays no other.
func TestEventOfOpenTransaction(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin := provision.MySQLPool(t, s, nil)
		a, b := open(t, s.URL()), open(t, s.URL())
		l, err := a.Mutex("k").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		waiter := waiting(t, b, "k", 1)
		var process string
		if err := admin.QueryRow("SELECT process FROM interlock_places").Scan(&process); err != nil {
			t.Fatal(err)
		}
		tx, err := admin.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.Exec("INSERT INTO interlock_events (process, kind, name, owner, sent) VALUES (?, 'asked', 'x', '', 0)", process); err != nil {
			t.Fatal(err)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		var token uint64 // of the grant that was made by the release, and written as an event
		if err := admin.QueryRow("SELECT token FROM interlock WHERE owner IS NOT NULL").Scan(&token); err != nil {
			t.Fatal(err)
		}
		if got, _ := granted(t, "the waiter", waiter).Token(); got != token {
			t.Error("the waiter did not get the event, and the lock only when that grant had ended")
		}
	})
}

// TestAnotherUser: a process may not wake that of another user, which notices it and looks more often.
func TestAnotherUser(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin := provision.MySQLPool(t, s, nil)
		var clients []*lock.Client
		for _, user := range []string{"one", "two"} {
			exec(t, admin, "CREATE USER "+user+"@'%' IDENTIFIED BY 's3cret'", "GRANT ALL ON locks.* TO "+user+"@'%'")
			clients = append(clients, open(t, as(s, user, "s3cret", nil)))
		}
		for range 3 { // the first two may take as long as a listener sleeps
			l, err := clients[0].Mutex("k", lock.WithTTL(5*time.Minute)).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := waiting(t, clients[1], "k", 1)
			if err := l.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			next := granted(t, "the waiter of another user", got)
			t.Logf("granted after %v", time.Since(begun))
			if err := next.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestListenerKilled: the connections for events end again and again. They are restored, and waiters are served.
func TestListenerKilled(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin, url := withApp(t, s)
		c := open(t, url)
		for i := range 5 {
			l, err := c.Mutex("k").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := waiting(t, c, "k", 1)
			killed := 0
			for _, th := range threads(t, admin, "app") {
				if strings.Contains(th.query, "interlock_listen") || th.state == "User lock" || th.state == "User sleep" {
					exec(t, admin, fmt.Sprintf("KILL %d", th.id))
					killed++
				}
			}
			if killed == 0 {
				t.Errorf("round %d: no connection for events", i)
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := granted(t, "the waiter", got).Unlock(t.Context()); err != nil {
				t.Error(err)
			}
			eventually(t, "the connection is restored", func() bool {
				var n int
				for _, th := range threads(t, admin, "app") {
					if th.state == "User lock" || th.state == "User sleep" {
						n++
					}
				}
				return n > 0
			})
		}
	})
}
