package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/mysqllock"
)

// sessionSettings are defaults of a server that change what statements do. A client that opens its own connections sets
// those that matter. For a pool of the application those that are not harmless are refused.
var sessionSettings = []struct {
	name, value string
	refused     bool
}{
	{"completion_type", "'CHAIN'", false},
	{"completion_type", "'RELEASE'", false},
	{"sql_select_limit", "1", false},
	{"sql_safe_updates", "1", false},
	{"max_join_size", "1", true}, // and with it sql_big_selects=0
	{"sql_mode", "'ONLY_FULL_GROUP_BY,NO_UNSIGNED_SUBTRACTION,HIGH_NOT_PRECEDENCE,IGNORE_SPACE,TRADITIONAL'", false},
	{"sql_mode", "'EMPTY_STRING_IS_NULL'", false},
	{"sql_mode", "'SIMULTANEOUS_ASSIGNMENT'", false},
	{"sql_mode", "'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'", false},
	{"transaction_read_only", "1", true},
	{"sql_auto_is_null", "1", false},
	{"max_execution_time", "1000", false},
	{"max_statement_time", "1", false},
	{"innodb_lock_wait_timeout", "1", false},
	{"lock_wait_timeout", "1", false},
	{"time_zone", "'+13:00'", false},
	{"group_concat_max_len", "4", false},
	{"unique_checks", "0", false},
	{"foreign_key_checks", "0", false},
	{"div_precision_increment", "0", false},
	{"max_sort_length", "8", false},
	{"eq_range_index_dive_limit", "1", false},
	{"optimizer_switch", "'derived_merge=off,index_merge=off,materialization=off,semijoin=off'", false},
	{"query_cache_type", "1", false},
	{"low_priority_updates", "1", false},
	{"autocommit", "0", true},
}

// TestSessionSettings: each setting is set by the client, refused by name, or harmless.
func TestSessionSettings(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin := provision.MySQLPool(t, s, func(c *mysql.Config) { c.Params = map[string]string{"autocommit": "1"} })
		exec(t, admin, "CREATE USER app@'%' IDENTIFIED BY 's3cret'", "GRANT ALL ON locks.* TO app@'%'")
		for i, set := range sessionSettings {
			t.Run(set.name+"="+strings.Trim(set.value, "'"), func(t *testing.T) {
				var before sql.NullString
				if err := admin.QueryRow("SELECT @@GLOBAL." + set.name).Scan(&before); err != nil {
					t.Skip(err) // the server has no such setting
				}
				if _, err := admin.Exec("SET GLOBAL " + set.name + "=" + set.value); err != nil {
					t.Skip(err) // nor such a value
				}
				defer func() {
					if _, err := admin.Exec("SET GLOBAL "+set.name+"=?", before.String); err != nil {
						exec(t, admin, "SET GLOBAL "+set.name+"="+before.String) // a number
					}
				}()
				table := fmt.Sprint("t", i)
				url := as(s, "app", "s3cret", map[string]string{"table": table, "ttl": "20s"})
				useEverything(t, open(t, url), open(t, url))
				pool := func() *sql.DB {
					return provision.MySQLPool(t, s, func(c *mysql.Config) { c.User, c.Passwd = "app", "s3cret" })
				}
				if set.refused {
					_, err := mysqllock.New(pool(), mysqllock.WithTable(table))
					name := set.name
					if name == "max_join_size" {
						name = "sql_big_selects"
					}
					if !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), name) {
						t.Errorf("a pool with %s=%s: want an error that names it, got %v", set.name, set.value, err)
					}
					return
				}
				useEverything(t, over(t, pool(), mysqllock.WithTable(table)), over(t, pool(), mysqllock.WithTable(table)))
			})
		}
	})
}

// useEverything uses each kind of packet.
func useEverything(t *testing.T, a, b *lock.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	no := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	l, err := a.Mutex("m").Lock(ctx)
	no("Lock", err)
	waiters := []<-chan *lock.Lease{waiting(t, b, "m", 1), waiting(t, a, "m", 2)}
	no("Check", l.Check(ctx))
	unlockInTurn(t, l, waiters)
	var readers []*lock.Lease
	for _, c := range []*lock.Client{a, b, a} {
		r, err := c.RWMutex("rw").RLock(ctx)
		no("RLock", err)
		readers = append(readers, r)
	}
	writer := waiting(t, b, "rw", 1)
	for _, r := range readers {
		no("Check of a reader", r.Check(ctx))
		no("Unlock of a reader", r.Unlock(ctx))
	}
	w := granted(t, "a writer behind readers", writer)
	info, err := a.Inspect(ctx, "rw")
	no("Inspect", err)
	if info.Holder == nil {
		t.Errorf("Inspect of a held lock: %+v", info)
	}
	n := 0
	for _, err := range a.List(ctx) {
		no("List", err)
		n++
	}
	if n != 1 {
		t.Errorf("List: %d locks, want 1", n)
	}
	no("Downgrade", w.Downgrade(ctx))
	no("Unlock", w.Unlock(ctx))
	p, err := a.Semaphore("s", 3).Acquire(ctx, 2)
	no("Acquire", err)
	q, err := b.Semaphore("s", 3).Acquire(ctx, 1)
	no("Acquire beside it", err)
	short, stop := context.WithTimeout(ctx, 300*time.Millisecond)
	defer stop()
	if _, err := b.Semaphore("s", 3).Acquire(short, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a fourth permit of three: want DeadlineExceeded, got %v", err)
	}
	no("Unlock of permits", p.Unlock(ctx))
	no("Unlock of a permit", q.Unlock(ctx))
	l, err = a.Mutex("broken").Lock(ctx)
	no("Lock", err)
	_, err = b.Break(ctx, "broken")
	no("Break", err)
	if err := l.Check(ctx); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Check of a broken lock: want ErrLost, got %v", err)
	}
}
