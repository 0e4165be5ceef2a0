package renewal

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/retry"
	"github.com/interlock-go/lock/internal/task"
)

// Bounds of the requests of one client.
const (
	MaxSingle    = 8   // requests in flight, below which a renewal is sent by itself
	MaxBatch     = 256 // renewals in a batch
	MaxBatches   = 4   // in flight
	batchTimeout = 10 * time.Second
)

// MaxQueueWait returns how long a renewal that has d until its deadline waits in the queue.
// Then it is sent by itself, so batches that hang delay others for that long only.
func MaxQueueWait(d time.Duration) time.Duration { return d / 2 }

// batcher sends the renewals of one client. While fewer than MaxSingle requests are in
// flight each renewal is sent by itself, at once. Further renewals queue. The queue is
// sent as a batch when a request ends, and when it has MaxBatch members. So no renewal is
// delayed to fill a batch, and batches grow with the load of the service.
type batcher struct {
	renewer backend.BatchRenewer
	tasks   *task.Group
	name    string // of the backend

	mu       sync.Mutex // guards the fields below
	disabled bool       // the backend does not support batches as it is deployed
	singles  int        // in flight
	batches  int        // in flight
	queue    list.List  // of *waitingRenewal
}

// waitingRenewal is a renewal in the queue or in a batch.
type waitingRenewal struct {
	backend.Renewal
	ctx   context.Context
	reply chan error    // capacity 1
	elem  *list.Element // in the queue; nil afterwards
	batch *batch        // nil while it is in the queue
}

// batch is one request for several renewals.
type batch struct {
	members []*waitingRenewal
	waiting int // members that have not given up
	ctx     context.Context
	cancel  context.CancelFunc
}

// renew renews g by itself or, unless single is set, perhaps in a batch, and reports
// which.
func (r *batcher) renew(ctx context.Context, g backend.Grant, ttl time.Duration, single bool) (batched bool, err error) {
	if m := r.enqueue(ctx, g, ttl, single); m != nil {
		sent, err := r.wait(m)
		if errors.Is(err, errors.ErrUnsupported) {
			r.disable()
		} else if sent {
			return true, err
		}
	}
	defer r.endSingle()
	return false, g.Renew(ctx, ttl)
}

// enqueue returns nil if the renewal is to be sent by itself; it then counts as a single.
func (r *batcher) enqueue(ctx context.Context, g backend.Grant, ttl time.Duration, single bool) *waitingRenewal {
	r.mu.Lock()
	defer r.mu.Unlock()
	if single || r.disabled || r.singles+r.batches < MaxSingle && r.queue.Len() == 0 {
		r.singles++
		return nil
	}
	m := &waitingRenewal{Renewal: backend.Renewal{Grant: g, TTL: ttl}, ctx: ctx, reply: make(chan error, 1)}
	m.elem = r.queue.PushBack(m)
	if r.queue.Len() >= MaxBatch {
		r.flushLocked()
	}
	return m
}

// disable sends every renewal by itself from now on. The caller's counts as a single.
func (r *batcher) disable() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.disabled = true
	r.singles++
}

// wait returns the reply of the batch of m, or the end of its context. It returns false if
// m has waited in the queue for too long and is to be sent by itself.
func (r *batcher) wait(m *waitingRenewal) (sent bool, err error) {
	limit := batchTimeout
	if d, ok := m.ctx.Deadline(); ok {
		limit = MaxQueueWait(time.Until(d))
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case err := <-m.reply:
			return true, err
		case <-m.ctx.Done():
			select {
			case err := <-m.reply: // it came in time, and this process was busy
				return true, err
			default:
				return true, r.giveUp(m)
			}
		case <-timer.C:
			if r.dequeue(m) {
				return false, nil
			}
		}
	}
}

// dequeue moves m from the queue to the singles. It returns false if m is in a batch.
func (r *batcher) dequeue(m *waitingRenewal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.elem == nil {
		return false
	}
	r.queue.Remove(m.elem)
	m.elem = nil
	r.singles++
	return true
}

// giveUp removes m, whose context has ended, and returns the error of its renewal. The
// context of a batch ends when the last of its members has given up.
func (r *batcher) giveUp(m *waitingRenewal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := retry.ContextError(m.ctx)
	if m.elem != nil {
		r.queue.Remove(m.elem)
		m.elem = nil
	}
	if m.batch == nil {
		return backend.NotExecuted(err)
	}
	if m.batch.waiting--; m.batch.waiting == 0 {
		m.batch.cancel()
	}
	return backend.Uncertain(err)
}

func (r *batcher) endSingle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.singles--
	r.flushLocked()
}

// flushLocked sends the queue in batches, as many as may be in flight.
func (r *batcher) flushLocked() {
	for r.batches < MaxBatches && r.queue.Len() > 0 {
		b := &batch{}
		for len(b.members) < MaxBatch && r.queue.Len() > 0 {
			m := r.queue.Remove(r.queue.Front()).(*waitingRenewal)
			m.elem = nil
			if m.ctx.Err() == nil { // else its lease has ended
				m.batch = b
				b.members = append(b.members, m)
			}
		}
		if len(b.members) == 0 || !r.tasks.BeginCleanup() { // true: each member is in a task
			return
		}
		b.ctx, b.cancel = context.WithTimeout(r.tasks.Working(), batchTimeout)
		b.waiting = len(b.members)
		r.batches++
		go r.send(b)
	}
}

// send renews the members of a batch and replies to each.
func (r *batcher) send(b *batch) {
	defer r.tasks.Done()
	defer b.cancel()
	renewals := make([]backend.Renewal, len(b.members))
	for i, m := range b.members {
		renewals[i] = m.Renewal
	}
	errs, err := r.call(b.ctx, renewals)
	for i, m := range b.members {
		if err == nil {
			m.reply <- errs[i]
		} else {
			m.reply <- err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batches--
	r.flushLocked()
}

// call calls the driver. If the driver panics or returns a wrong number of errors, call
// returns an error that holds for all renewals.
func (r *batcher) call(ctx context.Context, renewals []backend.Renewal) (errs []error, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = backend.Uncertain(fmt.Errorf("RenewBatch of backend %s panicked: %v", r.name, p))
		}
	}()
	errs = r.renewer.RenewBatch(ctx, renewals)
	if len(errs) != len(renewals) {
		return nil, backend.Uncertain(fmt.Errorf("RenewBatch of backend %s returned %d errors for %d grants", r.name, len(errs), len(renewals)))
	}
	return errs, nil
}
