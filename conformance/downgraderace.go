package conformance

import (
	"context"
	"errors"
	"sync"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// downgradeRacesUnlock calls the methods of one lease at the same time. With the race detector it finds
// fields of a grant that two of them use without a mutex.
func downgradeRacesUnlock(t *T) {
	key := t.key("downgrade-races")
	c, other, w := t.client(), t.client(), t.waiter()
	_, queues := t.probe.(backend.Waiter)
	for i := range t.rounds(20, 200) {
		l := t.mustLock(c.Mutex(key), "a free key")
		var reader <-chan locked
		if queues && i%2 == 1 { // the downgrade or the release grants it the lock
			reader = t.waiting(t.ctx, w, w.c.RWMutex(key).RLocker(), "a reader")
		}
		calls := map[string]func(context.Context) error{
			"Downgrade": l.Downgrade,
			"Extend":    func(ctx context.Context) error { return l.Extend(ctx, t.longTTL()) },
			"Check":     l.Check,
			"Err": func(context.Context) error {
				_, _ = l.Token()
				_, _ = l.Slots(), l.Expires()
				return l.Err()
			},
			"Unlock": l.Unlock,
		}
		start := make(chan struct{})
		var all sync.WaitGroup
		for name, call := range calls {
			all.Go(func() {
				<-start
				err := call(t.ctx)
				if name == "Unlock" && err != nil || err != nil && !errors.Is(err, lock.ErrReleased) {
					t.errorf("round %d: %s beside the other methods of a lease: want nil, or ErrReleased but of Unlock, got %v", i, name, err)
				}
			})
		}
		t.within(2*t.slack(), "the methods of a lease, called at the same time", func() { close(start); all.Wait() })
		if reader != nil {
			t.mustUnlock(t.granted(t.slack(), "a reader behind a lease that has ended", reader).lease, "the reader")
		}
		t.free(other, key, "after Downgrade and Unlock at the same time", t.slack())
	}
}
