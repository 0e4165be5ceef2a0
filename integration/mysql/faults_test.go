package mysql_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/mysql/mysqltest"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/mysqllock"
)

// TestPrivileges uses the privileges that the documentation lists and no more.
func TestPrivileges(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin := provision.MySQLPool(t, s, nil)
		exec(t, admin, "CREATE USER app@'%' IDENTIFIED BY 's3cret'", "CREATE USER reader@'%' IDENTIFIED BY 's3cret'", "CREATE TABLE other (a INT)",
			"GRANT SELECT ON locks.other TO reader@'%'")
		schema, err := mysqllock.Schema("least")
		if err != nil {
			t.Fatal(err)
		}
		migrate(t, admin, schema)
		for _, table := range []string{"least", "least_places", "least_events"} {
			exec(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE ON locks."+table+" TO app@'%'")
		}
		withoutCreate := map[string]string{"table": "least", "create": "false"}
		refused(t, "no privilege to call procedures", as(s, "app", "s3cret", withoutCreate), "GRANT EXECUTE", "lockctl schema")
		refused(t, "no privilege to create procedures", as(s, "app", "s3cret", map[string]string{"table": "least"}), "CREATE ROUTINE", "lockctl schema")
		exec(t, admin, "GRANT EXECUTE ON locks.* TO app@'%'")

		c := open(t, as(s, "app", "s3cret", withoutCreate))
		l, err := c.Mutex("k").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if info, err := c.Inspect(t.Context(), "k"); err != nil || info.Holder == nil {
			t.Errorf("Inspect: %+v, %v", info, err)
		}
		for _, err := range c.List(t.Context()) {
			if err != nil {
				t.Errorf("List: %v", err)
			}
		}
		if err := errors.Join(l.Extend(t.Context(), time.Minute), l.Check(t.Context()), c.Ping(t.Context()), l.Unlock(t.Context())); err != nil {
			t.Error(err)
		}
		for _, table := range []string{"least", "least_places", "least_events"} {
			exec(t, admin, "GRANT SELECT ON locks."+table+" TO reader@'%'")
		}
		for _, user := range []string{"reader"} {
			c := open(t, as(s, user, "s3cret", map[string]string{"table": "least"}))
			if _, err := c.Inspect(t.Context(), "k"); err != nil {
				t.Errorf("%s: Inspect: %v", user, err)
			}
			if _, err := c.Mutex("k").TryLock(t.Context()); err == nil || !strings.Contains(err.Error(), "denied") || !strings.Contains(err.Error(), "Permissions") {
				t.Errorf("%s: want a TryLock that names the privilege, got %v", user, err)
			}
		}
		refused(t, "no table, no privilege to create it", as(s, "reader", "s3cret", nil), "1142", "CREATE", "Permissions")
		refused(t, "no table and create=false", s.URL()+"?create=false&table=absent", `table absent`, "does not exist", "mysqllock.Schema")
		refused(t, "a wrong password", as(s, "app", "s3cret-not", nil), "1045", s.Addr())
		refused(t, "a table of another kind", s.URL()+"?table=other", "table other is not a lock table", "?table=")
		refused(t, "a name with a quote", s.URL()+"?table=a%60b", "invalid table")
		refused(t, "no database", "mysql://root@"+s.Addr()+"/", "database")
		refused(t, "an unknown database", "mysql://root@"+s.Addr()+"/nowhere", "1049", "nowhere")
		exec(t, admin, "CREATE TABLE older (name VARBINARY(10)) COMMENT='interlock lock table, schema 4'")
		refused(t, "another schema", s.URL()+"?table=older", `schema "4"`, "wants 5", "?table=", "drop it")
		for _, table := range []string{"absent"} {
			var n int
			if err := admin.QueryRow("SELECT COUNT(*) FROM information_schema.tables WHERE table_name=?", table).Scan(&n); err != nil || n != 0 {
				t.Errorf("table %s: want it not created, got %d, %v", table, n, err)
			}
		}
	})
}

// TestReadOnly: a read-only server causes an error that says so, and no grant.
func TestReadOnly(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin := provision.MySQLPool(t, s, nil)
		exec(t, admin, "CREATE USER app@'%' IDENTIFIED BY 's3cret'", "GRANT ALL ON locks.* TO app@'%'")
		b, err := suite.Open(t.Context(), as(s, "app", "s3cret", nil))
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close(context.Background())
		exec(t, admin, "SET GLOBAL read_only=1")
		req := backend.Request{Key: "k", Owner: strings.Repeat("0a", 16), TTL: time.Minute}
		g, err := b.TryAcquire(t.Context(), req)
		if g != nil || err == nil || backend.OutcomeUnknown(err) || !strings.Contains(err.Error(), "primary") {
			t.Errorf("TryAcquire on a read-only server: want an error that says so and that nothing was executed, got %v, %v", g, err)
		}
		exec(t, admin, "SET GLOBAL read_only=0")
		if g, err := b.TryAcquire(t.Context(), req); err != nil {
			t.Errorf("TryAcquire afterwards: %v", err)
		} else if err := g.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestRowLocked: while a transaction keeps the row locked, requests fail within the timeout.
func TestRowLocked(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin := provision.MySQLPool(t, s, nil)
		c := open(t, s.URL()+"?timeout=2s")
		l, err := c.Mutex("k").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		token, _ := l.Token()
		b, err := mysqllock.New(admin)
		if err != nil {
			t.Fatal(err)
		}
		tx, err := admin.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Guard(t.Context(), tx, "k", token+1); !errors.Is(err, lock.ErrLost) {
			t.Errorf("Guard with another token: want ErrLost, got %v", err)
		}
		if err := b.Guard(t.Context(), tx, "k", token); err != nil {
			t.Errorf("Guard of the holder: want nil, got %v", err)
		}
		start := time.Now()
		other, err := suite.Open(t.Context(), s.URL()+"?timeout=2s")
		if err != nil {
			t.Fatal(err)
		}
		_, err = other.(backend.Breaker).Break(t.Context(), "k", "")
		if err == nil || time.Since(start) > bound {
			t.Errorf("Break while a guarded transaction is open: want an error in about 2 s, got %v after %v", err, time.Since(start))
		}
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock after the transaction: %v", err)
		}
		tx, err = admin.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Guard(t.Context(), tx, "k", token); !errors.Is(err, lock.ErrLost) {
			t.Errorf("Guard after the release: want ErrLost, got %v", err)
		}
		_ = tx.Rollback()
		_ = other.Close(context.Background())
	})
}

// TestKilledConnections ends all connections of the client again and again, while goroutines
// acquire, wait for, renew and release locks.
func TestKilledConnections(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin := provision.MySQLPool(t, s, nil)
		exec(t, admin, "CREATE USER app@'%' IDENTIFIED BY 's3cret'", "GRANT ALL ON locks.* TO app@'%'")
		c, err := lock.Open(t.Context(), as(s, "app", "s3cret", nil), lock.WithTTL(2*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(context.Background())
		// short leases end what a kill leaves behind; this one has to last as long as the test
		long, err := c.Mutex("long", lock.WithTTL(time.Minute)).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		end := time.Now().Add(4 * time.Second)
		done := make(chan int, 4)
		var inside int // guarded by the lock, as the race detector and the check below verify
		for range cap(done) {
			go func() {
				n := 0
				for time.Now().Before(end) {
					l, err := c.Mutex("short").Lock(t.Context())
					if err != nil {
						continue // killed
					}
					inside++
					if inside != 1 {
						t.Errorf("%d holders at once", inside)
					}
					inside--
					n++
					_ = l.Unlock(t.Context()) // an error means that it was killed; the core tries again
				}
				done <- n
			}()
		}
		renewed := make(chan int, 1)
		go func() {
			n := 0
			for time.Now().Before(end) {
				switch err := long.Check(t.Context()); { // renews it
				case err == nil:
					n++
				case errors.Is(err, lock.ErrLost):
					t.Errorf("a renewal of the long lease: %v", err)
				}
			}
			renewed <- n
		}()
		kills, cycles := 0, 0
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for finished := 0; finished < cap(done); {
			select {
			case n := <-done:
				cycles += n
				finished++
			case <-tick.C:
				if time.Now().Before(end) {
					kills += killAll(t, admin, "app")
				}
			}
		}
		renewals := <-renewed
		t.Logf("%d connections killed, %d cycles, %d renewals", kills, cycles, renewals)
		if kills == 0 || cycles == 0 || renewals == 0 {
			t.Errorf("%d connections killed, %d cycles, %d renewals: want some of each", kills, cycles, renewals)
		}
		if err := long.Err(); err != nil {
			t.Errorf("the long lease: %v", err)
		}
		if err := long.Unlock(t.Context()); err != nil {
			t.Errorf("its unlock: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		l, err := c.Mutex("short").Lock(ctx)
		if err != nil {
			t.Fatalf("afterwards: %v", err)
		}
		if err := l.Unlock(ctx); err != nil {
			t.Error(err)
		}
		mysqltest.NoDeadlocks(t, admin)
	})
}

// TestAbsent: opening fails within a bounded time, with an error that has the address.
func TestAbsent(t *testing.T) {
	t.Parallel()
	s := provision.NewMySQL(t, provision.AnyMariaDB, provision.Options{})
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	refused(t, "a server that hangs", as(s, "app", "s3cret", map[string]string{"dial_timeout": "1s", "timeout": "1s"}), s.Addr())
	if took := time.Since(start); took > bound {
		t.Errorf("opening at a server that hangs took %v", took)
	}
	if err := errors.Join(s.Resume(), s.Kill()); err != nil {
		t.Fatal(err)
	}
	refused(t, "no server", as(s, "app", "s3cret", nil), s.Addr())
}

// TestSilentServer: a statement without an answer is an error with the address, once, which
// does not match the error of a deadline that the caller did not set.
func TestSilentServer(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		p := provision.NewProxy(t, s.Addr())
		url := strings.Replace(suite.WithParams(s.URL(), map[string]string{"timeout": "500ms"}), s.Addr(), p.Addr(), 1)
		g, err := openRaw(t, url).TryAcquire(t.Context(), request("silent", time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Renew(t.Context(), time.Hour); err != nil { // the connection is open
			t.Fatal(err)
		}
		p.Stall()
		err = g.Renew(context.Background(), time.Hour)
		if err == nil || !backend.OutcomeUnknown(err) || errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("want an unknown outcome and no deadline, got %v", err)
		}
		if want := "outcome unknown: mysql at " + p.Addr() + ": no answer within 500ms"; err.Error() != want {
			t.Errorf("want %q, got %q", want, err)
		}
		if err := p.Heal(); err != nil {
			t.Error(err)
		}
	})
}
