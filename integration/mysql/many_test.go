package mysql_test

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/mysqllock"
)

// TestManyWaitForNoRow: while another transaction keeps the row of a lock, renewals and releases that are sent with those
// of it are executed.
func TestManyWaitForNoRow(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		db := provision.MySQLPool(t, s, nil)
		service, held := holds(t, s, &gate{}, 70)
		during := func(what, condition string, do func() error) {
			t.Helper()
			tx, err := db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			if _, err := tx.Exec("SELECT 1 FROM interlock WHERE name = 'lock:many-7' FOR UPDATE"); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- do() }()
			eventually(t, what+" of 69 locks, when the row of another is locked", func() bool {
				var n int
				q := "SELECT COUNT(*) FROM interlock WHERE name LIKE 'lock:many-%' AND name <> 'lock:many-7' AND " + condition
				if err := db.QueryRow(q).Scan(&n); err != nil {
					t.Error(err)
				}
				return n == 69
			})
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Errorf("%s: want all done after the transaction, got %v", what, err)
			}
		}
		during("renewals", "expires > since + 2*3600000000", func() error { return renew(t, service, held) })
		during("releases", "owner IS NULL", func() error {
			ends := make([]queue.End, len(held))
			for i, h := range held {
				ends[i] = queue.End{Request: backend.Request{Key: h.Key, Owner: h.Owner}, Kind: queue.Release}
			}
			for i, e := range service.End(t.Context(), ends) {
				if e.Err != nil || !e.Held {
					return fmt.Errorf("release %d: held %t, %w", i, e.Held, e.Err)
				}
			}
			return nil
		})
	})
}

// TestRenewalsOfOneKey: 70 renewals of readers of one key are one request, also if the row is locked. (With one for each, a
// server that takes 20 ms to make a commit durable would need 4 s for 200 pushed grants, which last 3 s.)
func TestRenewalsOfOneKey(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		db := provision.MySQLPool(t, s, nil)
		g := &gate{}
		service, held := readers(t, s, g, 70)
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.Exec("SELECT 1 FROM interlock WHERE name = 'lock:readers' FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		before := g.calls.Load()
		done := make(chan error, 1)
		go func() { done <- renew(t, service, held) }()
		eventually(t, "a renewal waits for the row", func() bool {
			return slices.ContainsFunc(threads(t, db, "root"), func(th thread) bool {
				return strings.Contains(th.query, "UPDATE")
			})
		})
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := g.calls.Load() - before; n != 1 {
			t.Errorf("70 renewals of one key: want 1 request, got %d", n)
		}
	})
}

// TestRenewalsBesideAGuard: a transaction of Guard delays the renewal of its reader, and of no other of the same key.
func TestRenewalsBesideAGuard(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		db := provision.MySQLPool(t, s, nil)
		service, held := readers(t, s, &gate{}, 70)
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		var place int64
		if err := db.QueryRow("SELECT place FROM interlock_places WHERE owner = ?", held[7].Owner).Scan(&place); err != nil {
			t.Fatal(err)
		}
		q := "SELECT 1 FROM interlock_places WHERE name = 'lock:readers' AND place = ? FOR UPDATE"
		if _, err := tx.Exec(q, place); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- renew(t, service, held) }()
		eventually(t, "69 of 70 readers are renewed", func() bool {
			var n int
			q := "SELECT COUNT(*) FROM interlock_places WHERE name = 'lock:readers' AND ends > since + 2*3600000000"
			if err := db.QueryRow(q).Scan(&n); err != nil {
				t.Error(err)
			}
			return n == 69
		})
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Errorf("want all renewed after the transaction, got %v", err)
		}
	})
}

// readers returns a service, and its holds of one key.
func readers(t *testing.T, s *provision.Server, g *gate, n int) (queue.Service, []queue.Hold) {
	t.Helper()
	service, held := holds(t, s, g, 0)
	for range n {
		r := request("readers", time.Hour)
		r.Share = backend.Share{Weight: 1}
		held = append(held, acquire(t, service, r))
	}
	return service, held
}

// holds returns a service, and n of its holds of names of their own.
func holds(t *testing.T, s *provision.Server, g *gate, n int) (queue.Service, []queue.Hold) {
	t.Helper()
	db := sql.OpenDB(gated{provision.MySQLConnector(t, s, nil), g})
	t.Cleanup(func() { _ = db.Close() })
	service, err := mysqllock.NewService(db, noEvents{}, mysqllock.WithNotify(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = service.Close(t.Context()) })
	var held []queue.Hold
	for i := range n {
		held = append(held, acquire(t, service, request(fmt.Sprintf("many-%d", i), time.Hour)))
	}
	return service, held
}

func acquire(t *testing.T, service queue.Service, r backend.Request) queue.Hold {
	t.Helper()
	if a, err := service.Acquire(t.Context(), queue.Attempt{Request: r}); err != nil || !a.Granted {
		t.Fatalf("a key that is free, or that readers hold: want a grant, got %+v, %v", a, err)
	}
	return queue.Hold{Key: r.Key, Owner: r.Owner, Share: r.Share, TTL: 3 * time.Hour}
}

func renew(t *testing.T, service queue.Service, held []queue.Hold) error {
	for i, r := range service.Renew(t.Context(), held) {
		if r.Err != nil {
			return fmt.Errorf("renewal %d: %w", i, r.Err)
		}
	}
	return nil
}
