package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

func historyLinearizable(t *T) {
	t.history(time.Duration(t.rounds(3, 40))*time.Second/2, lock.Share{})
}

func sharedHistory(t *T) {
	d := time.Duration(t.rounds(2, 20)) * time.Second / 2
	t.history(d, backend.Reader, backend.Reader, backend.Reader, lock.Share{})
	t.history(d, permits(1, 3), permits(2, 3), permits(1, 3), lock.Share{})
}

// history lets workers lock shares of one key for d, checks what is held at the same time, and
// then whether all grants and releases are those of one lock. If there is one share only, which
// is the whole lock, some leases are not renewed and lapse.
func (t *T) history(d time.Duration, shares ...lock.Share) {
	const clients, workersEach = 4, 2
	key := t.key("history")
	end := time.Now().Add(d)
	short := t.clampTTL(150 * time.Millisecond)
	lapses := len(shares) == 1 && short < time.Second
	h := NewHistory(t.fences())
	var held occupancy
	var wg sync.WaitGroup
	for i := range clients {
		c := t.client()
		for j := range workersEach {
			w := historyWorker{t, h, &held, i*workersEach + j}
			wg.Go(func() {
				for n := 0; time.Now().Before(end) && !t.failed(); n++ {
					s := shares[rand.IntN(len(shares))]
					if lapses && w.id == 0 && n%20 == 19 {
						w.step(s, shareOf(c, key, s, lock.WithTTL(short), lock.WithoutRenewal()), true)
					} else {
						w.step(s, shareOf(c, key, s), false)
					}
					time.Sleep(rand.N(2 * time.Millisecond)) // the clients' own pace
				}
			})
		}
	}
	wg.Wait()
	t.notef("%d operations", h.Len())
	if err := h.Check(30 * time.Second); err != nil {
		t.errorf("a history of %d grants and releases: %v", h.Len(), err)
	}
}

// historyWorker locks and unlocks, and records what it sees.
type historyWorker struct {
	t    *T
	h    *History
	held *occupancy
	id   int
}

// step acquires a share, in one way or another, and releases it or lets it lapse.
func (w historyWorker) step(s lock.Share, m lock.Mutex, lapse bool) {
	t := w.t
	ctx, cancel := t.ctx, context.CancelFunc(func() {})
	if rand.IntN(3) == 0 {
		ctx, cancel = context.WithTimeout(t.ctx, rand.N(10*time.Millisecond))
	}
	defer cancel()
	take := m.Lock
	if rand.IntN(4) == 0 {
		take = m.TryLock
	}
	call := time.Now()
	l, err := take(ctx)
	ret := time.Now()
	if err != nil {
		switch {
		case lapse && !errors.Is(err, lock.ErrLocked):
			t.notef("a lease that is to lapse: %v", err) // a service may be slower than so short a TTL
		case ctx.Err() == nil && !errors.Is(err, lock.ErrLocked):
			t.errorf("worker %d, share %s: want a grant, ErrLocked or the end of its context, got %v", w.id, s, err)
		}
		return
	}
	token, _ := l.Token()
	hold := w.h.Acquired(w.id, s, call, ret, token)
	if lapse {
		until := l.Expires()
		<-l.Done()
		w.h.Lost(w.id, hold, until)
		_ = l.Unlock(t.ctx)
		return
	}
	if why := w.held.enter(s); why != "" {
		t.errorf("worker %d was granted %s beside %s", w.id, s, why)
	}
	time.Sleep(rand.N(500 * time.Microsecond)) // the work
	w.held.leave(s)
	call = time.Now()
	err = l.Unlock(t.ctx)
	ret = time.Now()
	switch {
	case err == nil:
		w.h.Released(w.id, hold, call, ret)
	case errors.Is(err, lock.ErrUncertain):
		w.h.Lost(w.id, hold, call)
	default: // ErrLost too: the TTL is long and nothing is disturbed, so only this client can have ended the lease
		t.errorf("worker %d: Unlock of the share %s, token %d: want nil or ErrUncertain, got %v", w.id, s, token, err)
	}
}

// occupancy counts what is held at the same time.
type occupancy struct{ exclusive, weight atomic.Int64 }

// enter returns what is held beside a share that must not be.
func (o *occupancy) enter(s lock.Share) string {
	var e, w int64
	if s.Exclusive() {
		e, w = o.exclusive.Add(1)-1, o.weight.Load()
	} else {
		w, e = o.weight.Add(int64(s.Weight))-int64(s.Weight), o.exclusive.Load()
	}
	switch {
	case e > 0:
		return "an exclusive holder"
	case w > 0 && s.Exclusive(), s.Capacity > 0 && w+int64(s.Weight) > int64(s.Capacity):
		return fmt.Sprintf("a weight of %d", w)
	}
	return ""
}

func (o *occupancy) leave(s lock.Share) {
	if s.Exclusive() {
		o.exclusive.Add(-1)
	} else {
		o.weight.Add(-int64(s.Weight))
	}
}
