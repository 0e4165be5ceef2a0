package faults

import (
	"context"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/faults/workload"
)

// TestKilledAfterRelease kills a process after its lock was released and before the
// process has recorded that. Another client has the lock at that time. The trust of
// the process ended before its request, so this is not a violation.
func TestKilledAfterRelease(t *testing.T) {
	t.Parallel()
	for what, cfg := range map[string]workload.Config{"unlock": {Fast: 1}, "resign": {Leaders: 1}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			cfg.URL = (&url.URL{Scheme: "file", Path: t.TempDir()}).String()
			cfg.TTL, cfg.Keys, cfg.HangAfter = 2*time.Second, []string{"a", "b"}, what
			var mu sync.Mutex
			var ops []workload.Op
			record := func(op workload.Op) {
				mu.Lock()
				defer mu.Unlock()
				ops = append(ops, op)
			}
			p, err := startProcess(Self(), cfg, &workload.Fence{}, record)
			if err != nil {
				t.Fatal(err)
			}
			defer p.kill()
			select {
			case <-p.hangs:
			case <-time.After(30 * time.Second):
				t.Fatal("the process has released nothing within 30s")
			}
			mu.Lock()
			released := ops[len(ops)-1]
			mu.Unlock()
			if released.Kind != workload.Ending {
				t.Fatalf("the last record before the request: got %q, want %q", released.Kind, workload.Ending)
			}

			successor := workload.Op{Kind: workload.Acquired, Key: released.Key, Worker: 1, Hold: workload.MaxHolds + 1, Call: workload.Monotonic(time.Now())}
			c, err := lock.Open(t.Context(), cfg.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close(context.Background())
			l, err := c.Mutex(cfg.Keys[released.Key]).TryLock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			successor.Token, _ = l.Token()
			successor.Ret = workload.Monotonic(time.Now())
			record(successor)
			ends := p.kill()
			if len(ends) != 1 {
				t.Fatalf("ends of holds of the killed process: got %+v, want one", ends)
			}
			record(ends[0])
			end := workload.Op{Kind: workload.Released, Key: successor.Key, Worker: 1, Hold: successor.Hold, Call: workload.Monotonic(time.Now())}
			if err := l.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			end.Ret = workload.Monotonic(time.Now())
			record(end)
			h := &history{ops: ops, keys: cfg.Keys, fenced: true}
			for _, v := range h.check(time.Minute) {
				t.Errorf("%.500v", v)
			}
		})
	}
}
