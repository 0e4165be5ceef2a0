package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

var queueCases = []Case{
	{
		ID:     "waiting/11-wakes-per-release",
		Title:  "one release wakes at most the declared number of waiters",
		Clause: "Budget.WakesPerRelease is how many waiters, at most, one release wakes.",
		needs: []need{
			needBudget("WakesPerRelease", func(b Budget) float64 { return float64(b.WakesPerRelease) }),
			hook("Wakes", func(h *Harness) bool { return h.Wakes != nil }),
		},
		alone: true,
		run:   wakesPerRelease,
	},
	{
		ID:     "waiting/11-hand-off-commands",
		Title:  "a contended cycle costs at most the declared number of commands, at 4, 16 and 64 waiters",
		Clause: "Budget.HandOffCommands is how many commands, at most, the service executes for a contended cycle of lock and unlock, however many clients wait.",
		needs: []need{
			needBudget("HandOffCommands", func(b Budget) float64 { return b.HandOffCommands }),
			needServerCommands,
		},
		alone: true,
		run:   handOffCommands,
	},
	{
		ID:     "waiting/12-fifo",
		Title:  "waiters of several clients are served in the order of their arrival",
		Clause: "With Order declared as FIFO waiters are served by arrival at the service.",
		needs:  []need{declared(backend.RequireFIFO), needQueue},
		run:    fifo,
	},
	{
		ID:     "waiting/12-fifo-cancelled-waiters",
		Title:  "waiters that gave up neither stall nor reorder the waiters behind them",
		Clause: "A cancelled waiter leaves the queue; the order of the others stays.",
		needs:  []need{declared(backend.RequireFIFO), needQueue},
		run:    fifoCancelled,
	},
	{
		ID:     "waiting/12-try-does-not-overtake",
		Title:  "TryLock does not overtake waiters",
		Clause: "TryAcquire must not overtake the waiters in the backend's queue.",
		needs:  []need{declared(backend.RequireFIFO), needQueue},
		run:    tryDoesNotOvertake,
	},
	{
		ID:     "waiting/13-idle-holder-commands",
		Title:  "an idle holder costs at most the declared number of commands per TTL",
		Clause: "Budget.IdleHolderCommands is how many commands, at most, the service executes for a holder in one TTL.",
		needs: []need{
			needServerCommands,
			needBudget("IdleHolderCommands", func(b Budget) float64 { return b.IdleHolderCommands }),
		},
		alone: true,
		run:   idleHolder,
	},
	{
		ID:     "waiting/13-idle-waiter-commands",
		Title:  "an idle waiter costs at most the declared number of commands per TTL",
		Clause: "Budget.IdleWaiterCommands is how many commands, at most, the service executes for a waiter in one TTL of its holder, while the holder keeps the lock.",
		needs: []need{
			needServerCommands,
			needBudget("IdleWaiterCommands", func(b Budget) float64 { return b.IdleWaiterCommands }),
		},
		alone: true,
		run:   idleWaiter,
	},
}

// queueUp makes n waiters of several clients wait one after the other and returns
// how each ended, and a way to cancel each.
func (t *T) queueUp(key string, n int, ttl time.Duration) (order func() []int, cancels []context.CancelFunc, ends []chan locked) {
	ws := []*waiter{t.waiter(), t.waiter(), t.waiter()}
	var mu sync.Mutex
	var served []int
	for i := range n {
		ctx, cancel := context.WithCancel(t.ctx)
		cancels = append(cancels, cancel)
		end := make(chan locked, 1)
		ends = append(ends, end)
		ch := t.lockWaiting(ctx, ws[i%len(ws)], key, lock.WithTTL(ttl))
		go func() {
			got := <-ch
			if got.err == nil {
				mu.Lock()
				served = append(served, i)
				mu.Unlock()
				if err := got.lease.Unlock(t.ctx); err != nil {
					t.errorf("waiter %d: Unlock: want nil, got %v", i, err)
				}
			}
			end <- got
		}()
	}
	return func() []int {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(served)
	}, cancels, ends
}

func fifo(t *T) {
	const n = 12
	key := t.key("fifo")
	l := t.mustLock(t.client().Mutex(key), "a free key")
	order, _, ends := t.queueUp(key, n, t.longTTL())
	t.mustUnlock(l, "the holder")
	var want []int
	for i, end := range ends {
		want = append(want, i)
		if got := t.end(t.slack()+5*time.Second, fmt.Sprintf("waiter %d", i), end); got.err != nil {
			t.errorf("waiter %d: want a grant, got %v", i, got.err)
		}
	}
	if got := order(); !slices.Equal(got, want) {
		t.errorf("order of service: want that of arrival, %v, got %v", want, got)
	}
}

func fifoCancelled(t *T) {
	const n = 12
	key := t.key("fifo-cancelled")
	l := t.mustLock(t.client().Mutex(key), "a free key")
	order, cancels, ends := t.queueUp(key, n, t.longTTL())
	var want []int
	for i := range n {
		if i%3 == 1 {
			want = append(want, i)
			continue
		}
		cancels[i]()
		if got := t.end(t.slack(), fmt.Sprintf("cancelled waiter %d", i), ends[i]); !errors.Is(got.err, context.Canceled) {
			t.fatalf("cancelled waiter %d: want context.Canceled, got %v", i, got.err)
		}
	}
	t.mustUnlock(l, "the holder")
	for _, i := range want {
		if got := t.end(t.slack(), fmt.Sprintf("waiter %d behind cancelled ones (TTL %v)", i, t.longTTL()), ends[i]); got.err != nil {
			t.errorf("waiter %d: want a grant, got %v", i, got.err)
		}
	}
	if got := order(); !slices.Equal(got, want) {
		t.errorf("order of service: want that of arrival, %v, got %v", want, got)
	}
}

func tryDoesNotOvertake(t *T) {
	key := t.key("overtake")
	holder, w, m := t.client(), t.waiter(), t.client().Mutex(key)
	for round := range t.rounds(10, 200) {
		l := t.mustLock(holder.Mutex(key), "the key between two rounds")
		got := t.lockWaiting(t.ctx, w, key)
		ctx, stop := context.WithCancel(t.ctx)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for ctx.Err() == nil {
					l, err := m.TryLock(t.ctx)
					if err == nil {
						t.errorf("round %d: TryLock while another waits: want ErrLocked, it was granted %s", round, leaseText(l))
						_ = l.Unlock(t.ctx)
						return
					}
				}
			})
		}
		t.mustUnlock(l, "the holder")
		next := t.granted(t.slack(), fmt.Sprintf("round %d: the waiter, with others trying", round), got).lease
		stop()
		wg.Wait()
		t.mustUnlock(next, "the waiter")
		if t.failed() {
			return
		}
	}
}
