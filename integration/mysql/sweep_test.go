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
			rows = append(rows, fmt.Sprintf("('lock:k%05d',%s,'','',0,%s,'','',0,1)", i, at, at))
		}
		exec(s.T, s.admin, "INSERT INTO interlock VALUES "+strings.Join(rows, ","))
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
		_, err = tx.Exec("SELECT * FROM interlock WHERE name IN ('lock:held','lock:k02700') FOR UPDATE")
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

// TestQueueFull: a Lock that finds no room in the queue fails with ErrQueueFull.
func TestQueueFull(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		stage := &stage{T: t, s: s, admin: provision.MySQLPool(t, s, nil), b: openRaw(t, s.URL()), key: "full"}
		stage.try()
		stage.row("queue=REPEAT(?,20000)", fmt.Sprintf(";%032d,%010d,%016d,x", 0, time.Hour.Milliseconds(), 1))
		_, err := stage.b.(backend.Waiter).Acquire(t.Context(), stage.request())
		if !errors.Is(err, mysqllock.ErrQueueFull) || backend.OutcomeUnknown(err) {
			t.Errorf("want ErrQueueFull, got %v", err)
		}
	})
}
