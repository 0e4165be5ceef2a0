package conformance

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/interlock-go/lock"
)

func historyLinearizable(t *T) {
	const clients, workersEach = 4, 2
	key := t.key("history")
	h := NewHistory(t.fences())
	end := time.Now().Add(time.Duration(t.rounds(3, 40)) * time.Second / 2)
	short := t.clampTTL(150 * time.Millisecond)
	var r room
	var wg sync.WaitGroup
	for i := range clients * workersEach {
		var c *lock.Client
		if i%workersEach == 0 {
			c = t.client()
			t.mu.Lock()
			t.spare = c
			t.mu.Unlock()
		} else {
			c = t.hammer()
		}
		normal, lapsing := c.Mutex(key), c.Mutex(key, lock.WithTTL(short), lock.WithoutRenewal())
		wg.Go(func() {
			for n := 0; time.Now().Before(end) && !t.failed(); n++ {
				m, lapse := normal, i == 0 && n%20 == 19 && short < time.Second
				if lapse {
					m = lapsing
				}
				t.step(h, &r, i, m, lapse)
				time.Sleep(rand.N(2 * time.Millisecond)) // the clients' own pace
			}
		})
	}
	wg.Wait()
	t.notef("%d operations", h.Len())
	if w := r.worst.Load(); w > 1 {
		t.errorf("inside at the same time, leases still trusted: want at most 1, were %d", w)
	}
	if err := h.Check(30 * time.Second); err != nil {
		t.errorf("a history of %d operations: %v", h.Len(), err)
	}
}

// step makes one acquire, of one kind or another, and its release.
func (t *T) step(h *History, r *room, client int, m lock.Mutex, lapse bool) {
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
			t.errorf("client %d: want a grant, ErrLocked or the end of its context, got %v", client, err)
		}
		return
	}
	token, _ := l.Token()
	hold := h.Acquired(client, lock.Share{}, call, ret, token)
	if lapse {
		until := l.Expires()
		<-l.Done()
		h.Lost(client, hold, until)
		_ = l.Unlock(t.ctx)
		return
	}
	r.visit(func() { time.Sleep(rand.N(500 * time.Microsecond)) }) // the work
	call = time.Now()
	err = l.Unlock(t.ctx)
	ret = time.Now()
	switch {
	case err == nil:
		h.Released(client, hold, call, ret)
	case errors.Is(err, lock.ErrUncertain):
		h.Lost(client, hold, call)
	case errors.Is(err, lock.ErrLost):
		// The TTL is long and nothing is disturbed: only this client can have ended it.
		t.errorf("client %d: Unlock of token %d: want nil, got %v", client, token, err)
	default:
		t.errorf("client %d: Unlock of token %d: want nil or ErrUncertain, got %v", client, token, err)
	}
}
