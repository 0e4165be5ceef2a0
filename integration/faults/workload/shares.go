package workload

import (
	"context"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// capacity is that of the semaphores.
const capacity = 8

// mutex returns a lock of a key: any share of a shared one.
func (w *worker) mutex(key int, opts ...lock.MutexOption) (lock.Mutex, lock.Share) {
	c, name := w.lock, w.Keys[key]
	n := key - w.firstShared()
	caps := c.Capabilities()
	if n < 0 || n >= w.Shared || !caps.Shared || !caps.Permits || w.r.IntN(4) == 0 {
		return c.Mutex(name, opts...), lock.Share{}
	}
	if n%2 == 0 {
		return c.RWMutex(name, opts...).RLocker(), backend.Reader
	}
	k := 1 + w.r.IntN(4)
	return c.Semaphore(name, capacity, opts...).Weighted(k), lock.Share{Weight: k, Capacity: capacity}
}

func (w *worker) firstShared() int { return len(w.Keys) - 1 - w.Shared }

// read, writeAlone and usePermits take shares of the first two shared keys. They take the whole
// key if the backend grants no shares.
func (w *worker) read(ctx context.Context) {
	key := w.firstShared()
	if !w.lock.Capabilities().Shared {
		w.writeAlone(ctx)
		return
	}
	w.hold(ctx, key, w.lock.RWMutex(w.Keys[key]).RLocker(), backend.Reader)
}

func (w *worker) writeAlone(ctx context.Context) {
	key := w.firstShared()
	w.hold(ctx, key, w.lock.Mutex(w.Keys[key]), lock.Share{})
}

func (w *worker) usePermits(ctx context.Context) {
	key := w.firstShared() + 1
	if !w.lock.Capabilities().Permits {
		w.hold(ctx, key, w.lock.Mutex(w.Keys[key]), lock.Share{})
		return
	}
	k := 1 + w.r.IntN(3)
	w.hold(ctx, key, w.lock.Semaphore(w.Keys[key], capacity).Weighted(k), lock.Share{Weight: k, Capacity: capacity})
}

// hold waits for a lock and holds it for a short time.
func (w *worker) hold(ctx context.Context, key int, m lock.Mutex, share lock.Share) {
	h, err := w.acquire(ctx, key, share, "lock", m.Lock)
	if err == nil {
		w.pause(ctx, w.TTL/50)
		h.write()
		h.end()
	}
	w.pause(ctx, w.TTL/50)
}

// downgrade makes a writer of a key of readers a reader.
func (h *hold) downgrade(ctx context.Context) {
	w := h.w
	n := h.op.Key - w.firstShared()
	if n < 0 || n >= w.Shared || n%2 != 0 || !h.op.Share.Exclusive() || !w.lock.Capabilities().Shared {
		return
	}
	w.Before("extend")
	w.record(Op{Kind: Downgraded, Key: h.op.Key, Worker: w.id, Hold: h.op.Hold, Call: now()})
	h.lowered = true
	_ = h.l.Downgrade(ctx) // after an error it is a reader or a writer
}
