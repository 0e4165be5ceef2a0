package workload

import (
	"context"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// capacity is that of the semaphores.
const capacity = 3

// mutex returns a lock of a key: any share of a shared one.
func (w *worker) mutex(key int, opts ...lock.MutexOption) (lock.Mutex, lock.Share) {
	c, name := w.lock, w.Keys[key]
	n := key - (len(w.Keys) - 1 - w.Shared) // of the shared keys
	caps := c.Capabilities()
	if n < 0 || n >= w.Shared || !caps.Shared || !caps.Permits || w.r.IntN(4) == 0 {
		return c.Mutex(name, opts...), lock.Share{}
	}
	if n%2 == 0 {
		return c.RWMutex(name, opts...).RLocker(), backend.Reader
	}
	k := 1 + w.r.IntN(2)
	return c.Semaphore(name, capacity, opts...).Weighted(k), lock.Share{Weight: k, Capacity: capacity}
}

// downgrade makes a writer of a key of readers a reader.
func (h *hold) downgrade(ctx context.Context) {
	w := h.w
	n := h.op.Key - (len(w.Keys) - 1 - w.Shared)
	if n < 0 || n >= w.Shared || n%2 != 0 || !h.op.Share.Exclusive() || !w.lock.Capabilities().Shared {
		return
	}
	w.Before("extend")
	w.record(Op{Kind: Downgraded, Key: h.op.Key, Worker: w.id, Hold: h.op.Hold, Call: now()})
	h.lowered = true
	_ = h.l.Downgrade(ctx) // after an error it is a reader or a writer
}
