package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

// TestDiskFull: on a server whose disk is full each request fails, or is granted and in the
// row. A request whose outcome is unknown may be in the row too.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	for _, flavour := range provision.MySQLFlavours() {
		t.Run(flavour, func(t *testing.T) {
			t.Parallel()
			// all tables in one file of fixed size
			s := provision.NewMySQL(t, flavour, provision.Options{Args: append(provision.MySQLUnsynced(), "--innodb-file-per-table=0", "--innodb-data-file-path=ibdata1:12M:autoextend:max:20M")})
			admin := provision.MySQLPool(t, s, nil)
			b, err := suite.Open(t.Context(), s.URL()+"?timeout=1m")
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close(context.Background())
			exec(t, admin, "CREATE TABLE filler (id INT AUTO_INCREMENT PRIMARY KEY, body LONGBLOB NOT NULL)")
			for size := 1 << 20; size >= 1<<7; { // down to the last page
				if _, err := admin.Exec("INSERT INTO filler (body) VALUES (REPEAT('x',?))", size); err != nil {
					size /= 2
				}
			}
			granted, unknown, failed := map[string]backend.Grant{}, map[string]bool{}, 0
			for i := range 300 {
				req := backend.Request{Key: fmt.Sprint("full-", i, strings.Repeat("x", 500)), Owner: fmt.Sprintf("%032x", i), TTL: time.Hour}
				g, err := b.TryAcquire(t.Context(), req)
				if err != nil {
					failed++
					unknown[req.Owner] = errors.Is(err, backend.ErrUncertain)
					if g != nil {
						t.Fatalf("a grant with an error: %v", err)
					}
					continue
				}
				granted[req.Owner] = g
			}
			t.Logf("%d granted, %d failed", len(granted), failed)
			if failed == 0 {
				t.Error("no request failed: the disk was not full")
			}
			if len(granted) == 0 {
				return // MariaDB 11 exits when this file is full, before it has granted anything
			}
			rows, err := admin.Query("SELECT owner FROM interlock WHERE owner<>''")
			if err != nil {
				ctx, cancel := context.WithTimeout(t.Context(), bound)
				defer cancel()
				if why := s.WaitReady(ctx); why != nil && strings.Contains(why.Error(), "the server ended") {
					return // it exited later, after some grants: there is no table to read
				}
				t.Fatal(err)
			}
			defer rows.Close()
			n := 0
			for rows.Next() {
				var owner string
				if err := rows.Scan(&owner); err != nil {
					t.Fatal(err)
				}
				switch {
				case granted[owner] != nil:
					n++
				case !unknown[owner]:
					t.Errorf("owner %s was refused, and is in its row", owner)
				}
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
			if n != len(granted) {
				t.Errorf("%d granted, %d of them in the table", len(granted), n)
			}
		})
	}
}

// TestReadOnlyWhileHeld makes the server read-only, as a failover does with the old primary,
// while a lock has a holder and a waiter.
func TestReadOnlyWhileHeld(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin, url := withApp(t, s)
		variable := "read_only"
		if s.Flavour == provision.MySQL9 {
			variable = "super_read_only"
		}
		h, c := open(t, url), open(t, url)
		l, err := h.Mutex("k", lock.WithTTL(5*time.Minute)).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := waiting(t, c, "k", 1)
		exec(t, admin, "SET GLOBAL "+variable+"=1")
		if err := l.Extend(t.Context(), 10*time.Minute); err == nil || errors.Is(err, lock.ErrLost) {
			t.Errorf("Extend at a read-only server: want an error that is no loss, got %v", err)
		}
		if _, err := c.Mutex("other").TryLock(t.Context()); err == nil || !strings.Contains(err.Error(), "primary") {
			t.Errorf("TryLock at a read-only server: want an error that says so, got %v", err)
		}
		select {
		case <-got:
			t.Error("granted by a read-only server")
		default:
		}
		exec(t, admin, "SET GLOBAL read_only=0") // ends both
		if err := l.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock: %v", err)
		}
		if err := granted(t, "the waiter", got).Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
