package workload

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock"
)

// worker executes one operation after the other, chosen by random numbers.
type worker struct {
	*Client
	id      int
	holds   int
	inside  *atomic.Int64
	granted *atomic.Int64
	failed  *atomic.Value // of type failure
	r       *rand.Rand
}

// MaxHolds is how many leases a worker has at most in a run; it separates the numbers of
// leases of different workers.
const MaxHolds = 10_000_000

// awake returns when it is time to work, and false if ctx has ended. All workers work and rest
// at the same time, which keeps the contention of workers that never rest with less load.
func (w *worker) awake(ctx context.Context) bool {
	if w.Period == 0 {
		return ctx.Err() == nil
	}
	if at := (time.Duration(now()) + w.Phase) % w.Period; at >= w.Busy {
		select {
		case <-time.After(w.Period - at):
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// fast takes a key in a random way for a short time.
func (w *worker) fast(ctx context.Context) {
	key := w.Slow + w.r.IntN(len(w.Keys)-w.Slow-1)
	p := w.r.IntN(100)
	if p < 2 {
		key = w.r.IntN(len(w.Keys))
	}
	bound := w.between(50*time.Millisecond, w.TTL*3/2)
	if p%10 == 9 { // a cancel that races with the grant
		bound = w.between(0, 10*time.Millisecond)
	}
	h := w.take(ctx, key, p%4 == 1, bound)
	if h == nil {
		return
	}
	h.write()
	switch w.r.IntN(20) {
	case 0:
		h.extend(ctx)
	case 1, 2, 3:
		h.downgrade(ctx)
	}
	h.end()
}

// slow holds a key for up to more than a TTL, renewed or not.
func (w *worker) slow(ctx context.Context) {
	key := w.r.IntN(w.Slow)
	lapse := w.r.IntN(3) == 0
	length := w.between(0, w.TTL*6/5)
	var opts []lock.MutexOption
	if lapse && !w.calm.Load() {
		opts = append(opts, lock.WithoutRenewal())
		length = 2 * w.TTL
	}
	h := w.take(ctx, key, w.r.IntN(4) == 0, w.between(w.TTL/4, 2*w.TTL), opts...)
	if h == nil {
		return
	}
	for over := time.Now().Add(length); time.Now().Before(over) && !w.calm.Load() && ctx.Err() == nil && h.l.Err() == nil; {
		h.write()
		if w.r.IntN(4) == 0 && len(opts) == 0 {
			h.extend(ctx)
		}
		select {
		case <-h.l.Done():
		case <-time.After(w.between(0, w.TTL/10)):
		}
		h.trusted()
	}
	h.end()
	if lapse {
		w.pause(ctx, w.TTL/20)
		h.write() // too late, and the resource must know
	}
}

// patient waits without a deadline.
func (w *worker) patient(ctx context.Context) {
	if h := w.take(ctx, w.r.IntN(w.Slow+2), false, 0); h != nil {
		h.write()
		h.end()
	}
	w.pause(ctx, w.TTL/20)
}

// hold is a lease of a worker.
type hold struct {
	w     *worker
	l     *lock.Lease
	op    Op // the grant
	until int64
	// lowered: it may be that of a reader.
	lowered bool
	*events
}

// take waits for at most bound; zero: without a bound.
func (w *worker) take(ctx context.Context, key int, try bool, bound time.Duration, opts ...lock.MutexOption) *hold {
	m, share := w.mutex(key, opts...)
	take, what := m.Lock, "lock"
	if try {
		take, what = m.TryLock, "try"
	}
	bctx, cancel := ctx, context.CancelFunc(func() {})
	if bound > 0 {
		bctx, cancel = context.WithTimeout(ctx, bound)
	}
	defer cancel()
	h, err := w.acquire(bctx, key, share, what, take)
	if err == nil {
		return h
	}
	if !errors.Is(err, lock.ErrLocked) && bctx.Err() == nil {
		w.pause(ctx, 20*time.Millisecond) // the service does not serve
	}
	w.pause(ctx, 2*time.Millisecond)
	return nil
}

// acquire records the result of one call of Lock or TryLock.
func (w *worker) acquire(ctx context.Context, key int, share lock.Share, what string, take func(context.Context) (*lock.Lease, error)) (*hold, error) {
	op := Op{Kind: Acquired, Key: key, Share: share, Worker: w.id, Try: what == "try"}
	number := w.id*MaxHolds + w.holds + 1 // the number of this attempt's hold if it is granted
	e := &events{ending: func(at int64) { w.record(Op{Kind: Ending, Key: key, Worker: w.id, Hold: number, Call: at}) }}
	w.Before(what)
	op.Call = now()
	w.inside.Store(op.Call)
	l, err := take(context.WithValue(ctx, eventsKey{}, e))
	w.inside.Store(0)
	op.Ret, op.Waited = now(), e.waited.Load()
	if err != nil {
		w.refused.Add(1)
		w.failed.Store(failure{op.Ret, err.Error()})
		if op.Ret-op.Call > int64(time.Second) || errors.Is(err, lock.ErrInvalid) {
			op.Kind, op.Err = Refused, err.Error()
			w.record(op)
		}
		return nil, err
	}
	w.granted.Store(op.Ret)
	w.holds++
	op.Hold = number
	op.Token, _ = l.Token()
	op.Slots = l.Slots()
	op.Until = Monotonic(l.Expires())
	w.record(op)
	return &hold{w: w, l: l, op: op, until: op.Until, events: e}, nil
}

func (h *hold) extend(ctx context.Context) {
	h.w.Before("extend")
	_ = h.l.Extend(ctx, h.w.TTL) // the lease knows best what an error means
}

// trusted records that the lease was renewed.
func (h *hold) trusted() {
	if until := Monotonic(h.l.Expires()); until != h.until && h.l.Err() == nil {
		h.until = until
		h.w.record(Op{Kind: Trusted, Key: h.op.Key, Worker: h.w.id, Hold: h.op.Hold, Call: now(), Until: until})
	}
}

// write uses the resource, whether the lease has ended or not.
func (h *hold) write() { h.writeUnder(h.l) }

// writeUnder writes as a client that learns of the end of its lease from ctx.
func (h *hold) writeUnder(of interface{ Err() error }) {
	if h.lowered || !h.op.Share.Exclusive() {
		return // several holders may act at the same time
	}
	op := Op{Kind: Wrote, Key: h.op.Key, Worker: h.w.id, Hold: h.op.Hold, Token: h.op.Token}
	held := of.Err() == nil
	op.Call = now()
	op.OK = h.w.resource.Write(op.Key, op.Token)
	op.Ret = now()
	op.Sure = held && of.Err() == nil
	h.w.record(op)
}

// endTrust records that the trust in the lease ends now, and returns the time. The caller
// releases the lease afterwards.
func (h *hold) endTrust() int64 {
	at := now()
	h.ending(at)
	return at
}

// end releases the lease, or records that it was lost.
func (h *hold) end() {
	w, l := h.w, h.l
	w.Before("unlock")
	op := Op{Kind: Released, Key: h.op.Key, Worker: w.id, Hold: h.op.Hold, Token: h.op.Token}
	op.Call = h.endTrust()
	lost := l.Err()
	err := l.Unlock(context.Background())
	op.Ret = now()
	w.After("unlock")
	if lost != nil {
		err = lost
	}
	if err != nil {
		op.Kind, op.Err = Lost, err.Error()
		// It was trusted until its lease ended.
		op.Until = Monotonic(l.Expires())
		op.Stolen = errors.Is(err, lock.ErrLost) && h.lost.Load() == 0 && (op.Until == 0 || op.Ret < op.Until)
		if at := h.lost.Load(); at != 0 {
			op.Call = min(op.Call, at)
		}
		op.Early = errors.Is(err, lock.ErrLost) && (op.Until == 0 || op.Call < op.Until)
		if op.Until != 0 {
			op.Call = min(op.Call, op.Until)
		}
	}
	w.record(op)
}

func (w *worker) between(a, b time.Duration) time.Duration {
	return a + time.Duration(w.r.Int64N(int64(b-a)))
}

// pause waits for a random time.
func (w *worker) pause(ctx context.Context, most time.Duration) {
	select {
	case <-time.After(w.between(0, most)):
	case <-ctx.Done():
	}
}
