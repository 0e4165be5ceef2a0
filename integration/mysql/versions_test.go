package mysql_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/mysql/mysqltest"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/mysqllock"
)

const procedures = "information_schema.routines"

// TestConcurrentCreation: many processes create the tables and the procedures at the same time.
func TestConcurrentCreation(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin := provision.MySQLPool(t, s, nil)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				b, err := suite.Open(t.Context(), s.URL())
				if err != nil {
					t.Error(err)
					return
				}
				_ = b.Close(context.Background())
			})
		}
		all.Wait()
		if n := count(t, admin, procedures, "routine_schema='locks'"); n != 15 {
			t.Errorf("%d procedures, want 15", n)
		}
		mysqltest.NoDeadlocks(t, admin)
	})
}

// TestVersions: the procedures of another version stay beside those of this one for as long as some process uses them, and
// are dropped after the retention, but not sooner than after a day. A client whose procedures are gone creates them.
func TestVersions(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin := provision.MySQLPool(t, s, nil)
		b := openRaw(t, s.URL()).(*mysqllock.Backend)
		const other = "0123456789ab"
		exec(t, admin, "CREATE PROCEDURE interlock_acquire_"+other+"() SELECT 1", "CREATE PROCEDURE unrelated_"+other+"() SELECT 1",
			"INSERT INTO interlock (name, expires) VALUES (CONCAT(X'00','"+other+"'), "+serverNow+"-82800000000)")
		there := func() int {
			return count(t, admin, procedures, "routine_schema='locks' AND routine_name LIKE '%"+other+"'")
		}
		sweep := func() {
			t.Helper()
			if _, err := b.Sweep(t.Context(), time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		if sweep(); there() != 2 {
			t.Error("procedures that were used 23 hours ago were dropped")
		}
		exec(t, admin, "UPDATE interlock SET expires=expires-7200000000 WHERE name=CONCAT(X'00','"+other+"')")
		if sweep(); there() != 1 {
			t.Errorf("%d procedures of a version that was not used for 25 hours, want only the one that is not ours", there())
		}
		if n := count(t, admin, procedures, "routine_schema='locks' AND routine_name LIKE 'interlock%'"); n != 15 {
			t.Errorf("%d procedures of this version, want 15", n)
		}
		c, err := lock.New(b)
		if err != nil {
			t.Fatal(err)
		}
		l, err := c.Mutex("k").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := waiting(t, open(t, s.URL()), "k", 1)
		dropProcedures(t, s)
		if err := l.Check(t.Context()); err != nil {
			t.Errorf("a renewal whose procedure is gone: %v", err)
		}
		dropProcedures(t, s)
		if err := l.Unlock(t.Context()); err != nil {
			t.Errorf("an unlock whose procedure is gone: %v", err)
		}
		if err := granted(t, "the waiter", got).Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func dropProcedures(t *testing.T, s *provision.Server) {
	t.Helper()
	admin := provision.MySQLPool(t, s, nil)
	rows, err := admin.Query("SELECT routine_name FROM " + procedures + " WHERE routine_schema='locks'")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	for _, name := range names {
		exec(t, admin, "DROP PROCEDURE "+name)
	}
}

// TestSchema: what Schema returns is enough for a client that may not create anything, also in another database.
func TestSchema(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin := provision.MySQLPool(t, s, nil)
		exec(t, admin, "CREATE DATABASE infra")
		script, err := mysqllock.Schema("infra.locks")
		if err != nil {
			t.Fatal(err)
		}
		migrate(t, admin, script)
		c := open(t, suite.WithParams(s.URL(), map[string]string{"create": "false", "table": "infra.locks"}))
		l, err := c.Mutex("k").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := waiting(t, c, "k", 1)
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if err := granted(t, "the waiter", got).Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if !strings.Contains(script, "`infra`.`interlock_one_") || count(t, admin, procedures, "routine_schema='locks'") != 0 {
			t.Error("procedures in the database of the connection")
		}
	})
}
