package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/mysqllock"
)

// fill inserts rows of locks k<from> to k<to> that were used an age ago.
func (s *stage) fill(from, to int, age time.Duration) {
	s.Helper()
	for begin := from; begin < to; begin += 500 {
		var rows []string
		for i := begin; i < min(begin+500, to); i++ {
			at := fmt.Sprintf("%s-%d", serverNow, age.Microseconds())
			rows = append(rows, fmt.Sprintf("('lock:k%05d',0,%s,%s)", i, at, at))
		}
		exec(s.T, s.admin, "INSERT INTO interlock (name,place,token,granted) VALUES "+strings.Join(rows, ","))
	}
}

// TestSweep deletes unused rows of several pages. It waits for no row that is in use.
func TestSweep(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin := provision.MySQLPool(t, s, nil)
		stage := &stage{T: t, s: s, admin: admin, b: openRaw(t, s.URL()), key: "held"}
		b := stage.b.(*mysqllock.Backend)
		stage.fill(0, 2500, 2*time.Hour)
		stage.fill(2500, 3000, 0)
		g := stage.try()
		tx, err := admin.Begin()
		stage.no(err)
		defer func() { _ = tx.Rollback() }()
		_, err = tx.Exec("SELECT * FROM interlock WHERE name IN ('lock:held','lock:k02700') AND place=0 FOR UPDATE")
		stage.no(err)
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		if n, err := b.Sweep(ctx, time.Hour); err != nil || n != 2500 {
			t.Errorf("rows deleted: want 2500, got %d, %v", n, err)
		}
		stage.no(tx.Rollback())
		stage.no(g.Renew(t.Context(), time.Hour))
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
	stage := &stage{T: t, s: s, admin: provision.MySQLPool(t, s, nil), b: openRaw(t, s.URL()+"?retention=1m")}
	stage.fill(0, 5000, 2*time.Minute)
	left := 5000
	for begun := time.Now(); left > 0 && time.Since(begun) < time.Minute; time.Sleep(100 * time.Millisecond) {
		stage.no(stage.admin.QueryRow("SELECT COUNT(*) FROM interlock WHERE name<>''").Scan(&left))
	}
	if left > 0 {
		t.Errorf("%d rows are left", left)
	}
}

// TestSweepTokens: the token of a name whose row was swept rises, also if the clock was set back.
func TestSweepTokens(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		stage := &stage{T: t, s: s, admin: provision.MySQLPool(t, s, nil), b: openRaw(t, s.URL()), key: "swept"}
		last := stage.try().Token()
		stage.row("token=token+36000000000,granted=1,expires=1")
		last += 36000000000
		if n, err := stage.b.(*mysqllock.Backend).Sweep(t.Context(), time.Hour); err != nil || n != 1 {
			t.Fatalf("rows swept: want 1, got %d, %v", n, err)
		}
		for _, key := range []string{"swept", "never used before"} {
			stage.key = key
			if token := stage.try().Token(); token <= last {
				t.Errorf("%s: token %d after %d", key, token, last)
			}
		}
	})
}

// TestDeadQueue: a queue whose waiters have all died does not refuse a TryLock, and its row
// is swept. A queue that may have a live waiter stays.
func TestDeadQueue(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		b := openRaw(t, s.URL())
		on := func(key string, ended time.Duration) *stage {
			stage := &stage{T: t, s: s, admin: provision.MySQLPool(t, s, nil), b: b, key: key}
			stage.try()
			stage.enqueue() // for an hour
			stage.enqueue()
			stage.row(fmt.Sprintf("token=1,granted=1,expires=%s-%d", serverNow, ended.Microseconds()))
			return stage
		}
		on("used again", 3*time.Hour).try()
		on("swept", 3*time.Hour)
		alive := on("alive", 110*time.Minute)
		if n, err := b.(*mysqllock.Backend).Sweep(t.Context(), time.Hour); err != nil || n != 1 {
			t.Errorf("rows swept: want 1, got %d, %v", n, err)
		}
		alive.refused("a lock with waiters of an hour, 110 minutes after its lease", b, alive.request(), backend.ErrLocked)
	})
}
