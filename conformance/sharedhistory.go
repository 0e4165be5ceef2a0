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

// sharedHistory lets workers lock shares of one key, checks what is held at the same time, and
// then whether all grants and releases are those of one lock.
func sharedHistory(t *T) {
	for _, shares := range [][]lock.Share{
		{backend.Reader, backend.Reader, backend.Reader, {}},
		{permits(1, 3), permits(2, 3), permits(1, 3), {}},
	} {
		t.shareHistory(shares)
	}
}

func (t *T) shareHistory(shares []lock.Share) {
	const clients, workersEach = 4, 2
	key := t.key("share-history")
	end := time.Now().Add(time.Duration(t.rounds(2, 20)) * time.Second / 2)
	h := NewHistory(t.fences())
	var held occupancy
	var wg sync.WaitGroup
	for i := range clients {
		c := t.client()
		for j := range workersEach {
			wg.Go(func() {
				for time.Now().Before(end) && !t.failed() {
					t.shareStep(h, &held, i*workersEach+j, c, key, shares[rand.IntN(len(shares))])
					time.Sleep(rand.N(2 * time.Millisecond)) // the clients' own pace
				}
			})
		}
	}
	wg.Wait()
	t.notef("%d operations", h.Len())
	if err := h.Check(30 * time.Second); err != nil {
		t.errorf("a history of %d grants and releases of shares: %v", h.Len(), err)
	}
}

// shareStep acquires a share, in one way or another, and releases it.
func (t *T) shareStep(h *History, held *occupancy, client int, c *lock.Client, key string, s lock.Share) {
	ctx, cancel := t.ctx, context.CancelFunc(func() {})
	if rand.IntN(3) == 0 {
		ctx, cancel = context.WithTimeout(t.ctx, rand.N(10*time.Millisecond))
	}
	defer cancel()
	m := shareOf(c, key, s)
	take := m.Lock
	if rand.IntN(4) == 0 {
		take = m.TryLock
	}
	call := time.Now()
	l, err := take(ctx)
	ret := time.Now()
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, lock.ErrLocked) {
			t.errorf("worker %d, share %s: want a grant, ErrLocked or the end of its context, got %v", client, s, err)
		}
		return
	}
	token, _ := l.Token()
	hold := h.Acquired(client, s, call, ret, token)
	if why := held.enter(s); why != "" {
		t.errorf("worker %d was granted %s beside %s", client, s, why)
	}
	time.Sleep(rand.N(500 * time.Microsecond)) // the work
	held.leave(s)
	call = time.Now()
	if err := l.Unlock(t.ctx); err != nil {
		t.errorf("worker %d: Unlock of the share %s: want nil, got %v", client, s, err)
	}
	h.Released(client, hold, call, time.Now())
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
