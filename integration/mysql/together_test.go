package mysql_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/integration/provision"
)

// TestTogether: requests for different locks that are made at the same time share a request, and none waits for a row that
// another transaction has locked for another one.
func TestTogether(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		db, g := provision.MySQLPool(t, s, nil), &gate{}
		service, held := holds(t, s, g, 2)
		for _, e := range service.End(t.Context(), []queue.End{end(held[0]), end(held[1])}) {
			if e.Err != nil || !e.Held {
				t.Fatalf("%+v", e)
			}
		}
		lockRow := func(key string) (unlock func()) {
			tx, err := db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = tx.Rollback() })
			if _, err := tx.Exec("SELECT 1 FROM interlock WHERE name = ? FOR UPDATE", "lock:"+key); err != nil {
				t.Fatal(err)
			}
			return func() { _ = tx.Rollback() }
		}
		unlock := []func(){lockRow(held[0].Key), lockRow(held[1].Key)}
		const n = 40
		before := g.calls.Load()
		var waiting, others sync.WaitGroup
		var grants, refusals atomic.Int32
		var all sync.Map
		acquire := func(key string) {
			r := request(key, time.Hour)
			switch a, err := service.Acquire(t.Context(), queue.Attempt{Request: r, Mode: queue.NoQueue}); {
			case err != nil:
				t.Errorf("%s: %v", key, err)
			case a.Granted:
				grants.Add(1)
				all.Store(r.Owner, queue.Hold{Key: key, Owner: r.Owner})
			default:
				refusals.Add(1)
			}
		}
		waiting.Go(func() { acquire(held[0].Key) })
		eventually(t, "an acquire waits for its row", func() bool { return g.calls.Load() > before })
		waiting.Go(func() { acquire(held[1].Key) })
		for i := range n {
			others.Go(func() { acquire(fmt.Sprintf("together-%d", i)) })
		}
		others.Go(func() { acquire("together-0") }) // one of two
		others.Wait()
		for _, f := range unlock {
			f()
		}
		waiting.Wait()
		if grants.Load() != n+2 || refusals.Load() != 1 {
			t.Fatalf("want %d grants and 1 refusal, got %d and %d", n+2, grants.Load(), refusals.Load())
		}
		var released sync.WaitGroup
		for _, h := range all.Range {
			released.Go(func() {
				if e := service.End(t.Context(), []queue.End{end(h.(queue.Hold))}); e[0].Err != nil || !e[0].Held {
					t.Errorf("release: %+v", e[0])
				}
			})
		}
		released.Wait()
		if calls := g.calls.Load() - before; calls > 2*n { // rows that do not exist are made by a request each
			t.Errorf("%d locks and unlocks took %d requests, want them to share requests", n+2, calls)
		}
		if _, err := service.Acquire(t.Context(), queue.Attempt{Request: backend.Request{Key: "k", Owner: "none"}}); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("an owner of another form: want ErrInvalid, got %v", err)
		}
	})
}

func end(h queue.Hold) queue.End {
	return queue.End{Request: backend.Request{Key: h.Key, Owner: h.Owner}, Kind: queue.Release}
}
