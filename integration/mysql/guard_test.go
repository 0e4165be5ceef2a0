package mysql_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
)

// TestGuardStopsStaleHolder: a holder that continues after its lease has expired, as a
// stopped process does, cannot commit. A guarded holder cannot be replaced until it has
// committed.
func TestGuardStopsStaleHolder(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		db := provision.MySQLPool(t, s, nil)
		exec(t, db, "CREATE TABLE account (id INT PRIMARY KEY, balance INT NOT NULL)", "INSERT INTO account VALUES (1, 100)")
		b, c := backendOver(t, db)
		// once is a transaction of the application on its own data.
		once := func(token uint64, between func()) error {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			if err := b.Guard(t.Context(), tx, "account/1", token); err != nil {
				return err
			}
			between()
			if _, err := tx.Exec("UPDATE account SET balance=balance-10 WHERE id=1"); err != nil {
				return err
			}
			return tx.Commit()
		}
		// withdraw begins again if the lease was renewed since the snapshot, as the comment of Guard says.
		withdraw := func(token uint64, between func()) (err error) {
			var e *mysql.MySQLError
			for range 10 {
				if err = once(token, between); !errors.As(err, &e) || e.Number != 1020 {
					break
				}
			}
			return err
		}
		stale, err := c.Mutex("account/1", lock.WithTTL(time.Second), lock.WithoutRenewal()).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		old, _ := stale.Token()
		next, err := open(t, s.URL()).Mutex("account/1").Lock(t.Context()) // after the lease has expired
		if err != nil {
			t.Fatal(err)
		}
		if err := withdraw(old, func() {}); !errors.Is(err, lock.ErrLost) {
			t.Errorf("a stale holder's transaction: want ErrLost, got %v", err)
		}
		token, _ := next.Token()
		unlocked := make(chan error, 1)
		if err := withdraw(token, func() {
			go func() { unlocked <- next.Unlock(t.Context()) }()
			eventually(t, "an unlock that waits for the transaction", func() bool {
				return slices.ContainsFunc(threads(t, db, "root"), func(th thread) bool {
					return strings.Contains(th.query, "UPDATE `interlock`") || strings.Contains(th.query, "FOR UPDATE")
				})
			})
		}); err != nil {
			t.Fatalf("the holder's transaction: %v", err)
		}
		if err := <-unlocked; err != nil {
			t.Errorf("Unlock after the transaction: %v", err)
		}
		if err := withdraw(token, func() {}); !errors.Is(err, lock.ErrLost) {
			t.Errorf("a transaction after the unlock: want ErrLost, got %v", err)
		}
		var balance int
		if err := db.QueryRow("SELECT balance FROM account").Scan(&balance); err != nil || balance != 90 {
			t.Errorf("balance: want 90, one withdrawal, got %d, %v", balance, err)
		}
	})
}

// TestGuardAfterRenewal: the snapshot of a transaction is older than the renewal of the lease. Guard finds the lease, or
// returns the error of MariaDB with innodb_snapshot_isolation, after which a new transaction succeeds.
func TestGuardAfterRenewal(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		db := provision.MySQLPool(t, s, nil)
		b, c := backendOver(t, db)
		l, err := c.Mutex("account/2").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		token, _ := l.Token()
		for _, renewed := range []bool{true, false} {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec("SELECT COUNT(*) FROM interlock"); err != nil {
				t.Fatal(err)
			}
			if renewed {
				if err := l.Check(t.Context()); err != nil { // it renews
					t.Fatal(err)
				}
			}
			var e *mysql.MySQLError
			if err := b.Guard(t.Context(), tx, "account/2", token); err != nil && (!renewed || !errors.As(err, &e) || e.Number != 1020) {
				t.Errorf("renewed after the snapshot: %t: %v", renewed, err)
			} else {
				t.Logf("renewed after the snapshot: %t: %v", renewed, err)
			}
			_ = tx.Rollback()
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestFence executes the statement of the documentation of package mysqllock: data on another server than the
// locks compares the token.
func TestFence(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		db := provision.MySQLPool(t, s, nil)
		exec(t, db, "CREATE TABLE report (id BIGINT PRIMARY KEY, body TEXT NOT NULL, fence BIGINT UNSIGNED NOT NULL DEFAULT 0)", "INSERT INTO report (id, body) VALUES (42, '')")
		c := open(t, s.URL())
		write := func(body string, token uint64) bool {
			return updates(t, db, "UPDATE report SET body = ?, fence = ? WHERE id = 42 AND fence <= ?", body, token, token)
		}
		stale, err := c.Mutex("report/42", lock.WithTTL(time.Second), lock.WithoutRenewal()).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		old, _ := stale.Token()
		if !write("first", old) || !write("first again", old) {
			t.Error("the holder's writes: want them to succeed")
		}
		next, err := c.Mutex("report/42").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		token, _ := next.Token()
		if !write("second", token) {
			t.Error("the successor's write: want it to succeed")
		}
		if write("late", old) {
			t.Error("a stale holder's write: want it refused")
		}
		var body string
		if err := db.QueryRow("SELECT body FROM report").Scan(&body); err != nil || body != "second" {
			t.Errorf("body: want that of the successor, got %q, %v", body, err)
		}
		if err := next.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestGuardOfASharedHolder: a transaction that guards a holder of permits, also one that has expired, keeps only its
// own permit: those of dead holders are free after their TTL, and others release theirs at once.
func TestGuardOfASharedHolder(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		db := provision.MySQLPool(t, s, nil)
		b, c := backendOver(t, db)
		other := open(t, s.URL())
		permit := func(c *lock.Client, opts ...lock.MutexOption) *lock.Lease {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), bound)
			defer cancel()
			l, err := c.Semaphore("s", 4, opts...).Acquire(ctx, 1)
			if err != nil {
				t.Fatalf("a permit while one is guarded: %v", err)
			}
			return l
		}
		dies := []lock.MutexOption{lock.WithTTL(time.Second), lock.WithoutRenewal()}
		permit(other, dies...)
		guarded := permit(c, dies...)
		permit(other, dies...)
		lives := permit(other)
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		token, _ := guarded.Token()
		if err := b.Guard(t.Context(), tx, "s", token); err != nil {
			t.Fatal(err)
		}
		all := []*lock.Lease{lives, permit(other), permit(other)} // those of the dead, when they have expired
		if _, err := other.Semaphore("s", 4).TryAcquire(t.Context(), 1); !errors.Is(err, lock.ErrLocked) {
			t.Errorf("the permit that is guarded: want ErrLocked, got %v", err)
		}
		for _, l := range all {
			if err := l.Unlock(t.Context()); err != nil {
				t.Errorf("Unlock beside a guarded permit: %v", err)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
		l, err := other.Semaphore("s", 4).Acquire(t.Context(), 4)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestGuardedReader: a transaction that guards a reader delays the unlock and the break of that reader, and nothing else.
func TestGuardedReader(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		db := provision.MySQLPool(t, s, nil)
		b, c := backendOver(t, db)
		other := open(t, s.URL())
		read := func() *lock.Lease {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), bound)
			defer cancel()
			l, err := other.RWMutex("rw").RLock(ctx)
			if err != nil {
				t.Fatalf("a reader beside a guarded one: %v", err)
			}
			return l
		}
		guarded, err := c.RWMutex("rw").RLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		token, _ := guarded.Token()
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if err := b.Guard(t.Context(), tx, "rw", token); err != nil {
			t.Fatal(err)
		}
		unlocked := make(chan error, 1)
		go func() { unlocked <- guarded.Unlock(t.Context()) }()
		for range 20 { // while the unlock is repeated
			l := read()
			if err := l.Check(t.Context()); err != nil {
				t.Errorf("Check of a reader: %v", err)
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Errorf("Unlock of a reader: %v", err)
			}
		}
		select {
		case err := <-unlocked:
			t.Errorf("the guarded reader was unlocked: %v", err)
		default:
		}
		if _, err := other.RWMutex("rw").TryLock(t.Context()); !errors.Is(err, lock.ErrLocked) {
			t.Errorf("a writer beside the guarded reader: want ErrLocked, got %v", err)
		}
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
		if err := <-unlocked; err != nil {
			t.Errorf("Unlock after the transaction: %v", err)
		}
	})
}
