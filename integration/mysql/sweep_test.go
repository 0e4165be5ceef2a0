package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/mysqllock"
)

const serverNow = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))"

// fill inserts rows of locks k<from> to k<to> that were used an age ago.
func fill(t *testing.T, admin *sql.DB, from, to int, age time.Duration) {
	t.Helper()
	for begin := from; begin < to; begin += 500 {
		var rows []string
		for i := begin; i < min(begin+500, to); i++ {
			at := fmt.Sprintf("%s-%d", serverNow, age.Microseconds())
			rows = append(rows, fmt.Sprintf("('lock:k%05d',%s,%s)", i, at, at))
		}
		exec(t, admin, "INSERT INTO interlock (name,token,expires) VALUES "+strings.Join(rows, ","))
	}
}

func count(t *testing.T, db *sql.DB, table, where string) (n int) {
	t.Helper()
	if err := db.QueryRow("SELECT COUNT(*) FROM " + table + " WHERE " + where).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestSweep deletes unused rows of several pages. It waits for no row that is in use.
func TestSweep(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin := provision.MySQLPool(t, s, nil)
		b := openRaw(t, s.URL()).(*mysqllock.Backend)
		fill(t, admin, 0, 2500, 2*time.Hour)
		fill(t, admin, 2500, 3000, 0)
		exec(t, admin, "INSERT INTO interlock_places (name,place,owner,since) VALUES ('lock:k02700',-7,'gone',1), ('lock:k02700',-8,'late',"+serverNow+"+60000000), ('lock:none',1,'orphan',0)",
			"INSERT INTO interlock_events (process,kind,name,owner,sent) VALUES ('gone','lost','x','y',1), ('gone','lost','x','y',"+serverNow+")")
		g, err := b.TryAcquire(t.Context(), request("held", time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		tx, err := admin.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err = tx.Exec("SELECT * FROM interlock WHERE name IN ('lock:held','lock:k02701') FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		if n, err := b.Sweep(ctx, time.Hour); err != nil || n != 2500 {
			t.Errorf("rows deleted: want 2500, got %d, %v", n, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
		if places, events := count(t, admin, "interlock_places", "TRUE"), count(t, admin, "interlock_events", "TRUE"); places != 1 || events != 1 {
			t.Errorf("%d places and %d events are left, want the tombstone that is valid and the new event", places, events)
		}
		if err := g.Renew(t.Context(), time.Hour); err != nil {
			t.Error(err)
		}
		if n, err := b.Sweep(ctx, time.Hour); err != nil || n != 0 {
			t.Errorf("rows deleted by the second call: want none, got %d, %v", n, err)
		}
		if _, err := b.Sweep(ctx, time.Second); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("an age of one second: want ErrInvalid, got %v", err)
		}
	})
}

// TestRetention: names that were used once are gone after the retention, without a call of Sweep.
func TestRetention(t *testing.T) {
	t.Parallel()
	s := provision.NewMySQL(t, provision.AnyMariaDB, provision.Options{Args: provision.MySQLUnsynced()})
	admin := provision.MySQLPool(t, s, nil)
	openRaw(t, s.URL()+"?retention=1m")
	fill(t, admin, 0, 5000, 2*time.Minute)
	eventually(t, "the rows are gone", func() bool { return count(t, admin, "interlock", "name LIKE 'lock:%'") == 0 })
}

// TestSweepDead: a lock whose holder has died is free after one sweep, and gone after another. One that is held stays.
func TestSweepDead(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin := provision.MySQLPool(t, s, nil)
		b := openRaw(t, s.URL()).(*mysqllock.Backend)
		for _, key := range []string{"dead", "alive"} {
			if _, err := b.TryAcquire(t.Context(), request(key, time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		const old = "token=1,expires=1"
		exec(t, admin, "UPDATE interlock SET "+old+" WHERE name='lock:dead'")
		if n, err := b.Sweep(t.Context(), time.Hour); err != nil || n != 0 {
			t.Errorf("first sweep: %d, %v", n, err)
		}
		exec(t, admin, "UPDATE interlock SET "+old+" WHERE name='lock:dead' AND owner IS NULL")
		if n, err := b.Sweep(t.Context(), time.Hour); err != nil || n != 1 {
			t.Errorf("second sweep: want the dead lock deleted, got %d, %v", n, err)
		}
		if n := count(t, admin, "interlock", "name='lock:alive' AND owner IS NOT NULL"); n != 1 {
			t.Error("the lock that is held was swept")
		}
	})
}
