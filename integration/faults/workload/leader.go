package workload

import (
	"context"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/elect"
)

// lead campaigns for the last key until ctx ends, and resigns after a while each time.
// A leader learns of the end of its term from the context only.
func (w *worker) lead(ctx context.Context) {
	c := &candidate{Mutex: w.lock.Mutex(w.Keys[len(w.Keys)-1]), w: w}
	err := elect.Campaign(ctx, c, func(term context.Context) error {
		for over := time.Now().Add(w.between(0, w.TTL/4)); time.Now().Before(over) && !w.calm.Load() && term.Err() == nil; {
			c.h.writeUnder(term)
			select {
			case <-term.Done():
			case <-time.After(w.between(0, w.TTL/20)):
			}
			c.h.trusted()
		}
		c.led = c.h.endTrust()
		return elect.ErrResign
	}, elect.WithBackoff(w.TTL/50, w.TTL/10), elect.WithOnRetry(c.over))
	c.over(err)
}

// candidate is the Mutex of a campaign, and records its terms.
type candidate struct {
	lock.Mutex
	w   *worker
	h   *hold // the term
	led int64 // until then
}

// Lock implements lock.Mutex.
func (c *candidate) Lock(ctx context.Context) (*lock.Lease, error) {
	h, err := c.w.acquire(ctx, len(c.w.Keys)-1, lock.Share{}, "lock", c.Mutex.Lock)
	if err != nil {
		return nil, err
	}
	c.h = h
	return h.l, nil
}

// over records the end of a term. Only after a resignation it is certain that the lock is free.
func (c *candidate) over(err error) {
	h := c.h
	if h == nil {
		return
	}
	c.w.After("resign")
	op := Op{Kind: Released, Key: h.op.Key, Worker: c.w.id, Hold: h.op.Hold, Token: h.op.Token, Call: c.led, Ret: now()}
	if err != elect.ErrResign { //nolint:errorlint // the very value
		op.Kind, op.Err = Lost, err.Error()
		op.Until = Monotonic(h.l.Expires())
		if at := h.lost.Load(); at != 0 {
			op.Call = min(op.Call, at)
		}
		if op.Until != 0 {
			op.Call = min(op.Call, op.Until)
		}
	}
	c.w.record(op)
	c.h = nil
}
