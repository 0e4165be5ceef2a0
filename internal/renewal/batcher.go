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
	MaxDirect    = 2   // requests in flight, below which a renewal is sent by itself at once
	MaxSingle    = 8   // renewals in flight by themselves
	MaxBatch     = 256 // renewals in a batch
	MaxBatches   = 4   // in flight
	batchTimeout = 10 * time.Second
)

// MaxQueueWait returns how long a renewal of that limit waits in the queue. Then it need not wait for a batch, so batches
// that hang delay others for that long only.
func MaxQueueWait(limit time.Duration) time.Duration { return limit / 2 }

// batcher sends the renewals of one client. While fewer than MaxDirect requests are in
// flight each renewal is sent by itself, at once. Further renewals queue. The queue is
// sent as a batch when a request ends, and when it has MaxBatch members. So no renewal is
// delayed to fill a batch, and batches grow with the load of the service.
//
// A renewal whose last batch failed waits until fewer than MaxSingle are sent by themselves.
// One that has waited for MaxQueueWait takes either way, whichever is free first. More would
// not help: on a service that is only slow, thousands of single requests take the time in
// which it could renew them in batches.
type batcher struct {
	renewer backend.BatchRenewer
	tasks   *task.Group
	name    string // of the backend

	mu       sync.Mutex // guards the fields below
	disabled bool       // the backend does not support batches as it is deployed
	singles  int        // in flight
	batches  int        // in flight
	queue    list.List  // of *waitingRenewal, for a batch
	alone    list.List  // of *waitingRenewal, to be sent by themselves
}

// waitingRenewal is a renewal in a list or in a batch.
type waitingRenewal struct {
	backend.Renewal
	ctx   context.Context
	due   bool          // it has waited in the queue for MaxQueueWait
	turn  chan struct{} // closed when it is to be sent by itself, and counts as a single
	sent  chan struct{} // closed when its batch is sent
	reply chan error    // of the batch; capacity 1
	list  *list.List    // nil when it has left it
	elem  *list.Element
	batch *batch // nil before
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
	limit := retry.SendLimit(ctx, batchTimeout)
	if m := r.enqueue(ctx, g, ttl, single); m != nil {
		sent, err := r.wait(m, limit)
		if errors.Is(err, errors.ErrUnsupported) {
			r.disable()
		} else if sent {
			return true, err
		}
	}
	defer r.endSingle()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return false, g.Renew(ctx, ttl)
}

// enqueue returns nil if the renewal is to be sent by itself; it then counts as a single.
func (r *batcher) enqueue(ctx context.Context, g backend.Grant, ttl time.Duration, single bool) *waitingRenewal {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.disabled || single && r.singles < MaxSingle || r.singles+r.batches < MaxDirect && r.queue.Len() == 0 {
		r.singles++
		return nil
	}
	m := &waitingRenewal{
		Renewal: backend.Renewal{Grant: g, TTL: ttl}, ctx: ctx,
		turn: make(chan struct{}), sent: make(chan struct{}), reply: make(chan error, 1),
	}
	if single {
		m.enter(&r.alone)
		return m
	}
	m.enter(&r.queue)
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

func (m *waitingRenewal) enter(l *list.List) { m.list, m.elem = l, l.PushBack(m) }

// leave removes m from the list that it is in, if it is in one.
func (m *waitingRenewal) leave() {
	if m.list != nil {
		m.list.Remove(m.elem)
		m.list, m.elem = nil, nil
	}
}

// wait returns the reply of the batch of m, or why it was given up. It returns false if m is
// to be sent by itself.
func (r *batcher) wait(m *waitingRenewal, limit time.Duration) (sent bool, err error) {
	timer := time.NewTimer(MaxQueueWait(limit))
	defer timer.Stop()
	sending := m.sent
	for {
		select {
		case err := <-m.reply:
			return true, err
		case <-m.turn:
			return false, nil
		case <-sending:
			sending = nil
			timer.Reset(limit)
		case <-timer.C:
			if sending == nil {
				return true, r.giveUp(m, context.DeadlineExceeded)
			}
			r.overdue(m)
		case <-m.ctx.Done():
			return true, r.giveUp(m, retry.ContextError(m.ctx))
		}
	}
}

// overdue lets m, if it is in a list, take either way.
func (r *batcher) overdue(m *waitingRenewal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.due = true
	if m.list == &r.alone {
		m.leave()
		m.enter(&r.queue)
	}
	r.nextLocked()
}

// nextLocked sends what waits, as far as more may be in flight.
func (r *batcher) nextLocked() {
	for r.singles < MaxSingle && r.alone.Len() > 0 {
		r.goAloneLocked(r.alone.Front())
	}
	r.flushLocked()
	for r.singles < MaxSingle && r.queue.Len() > 0 && r.queue.Front().Value.(*waitingRenewal).due {
		r.goAloneLocked(r.queue.Front())
	}
}

func (r *batcher) goAloneLocked(e *list.Element) {
	m := e.Value.(*waitingRenewal)
	m.leave()
	r.singles++
	close(m.turn)
}

// giveUp removes m and returns the error of its renewal, or the reply if that came in time and
// this process was busy. The context of a batch ends when the last of its members has given up.
func (r *batcher) giveUp(m *waitingRenewal, err error) error {
	select {
	case err := <-m.reply:
		return err
	default:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m.leave()
	if m.batch != nil {
		if m.batch.waiting--; m.batch.waiting == 0 {
			m.batch.cancel()
		}
		return backend.Uncertain(err)
	}
	select {
	case <-m.turn: // it came meanwhile
		r.endSingleLocked()
	default:
	}
	return backend.NotExecuted(err)
}

func (r *batcher) endSingle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endSingleLocked()
}

func (r *batcher) endSingleLocked() {
	r.singles--
	r.nextLocked()
}

// flushLocked sends the queue in batches, as many as may be in flight.
func (r *batcher) flushLocked() {
	for r.batches < MaxBatches && r.queue.Len() > 0 {
		b := &batch{}
		for len(b.members) < MaxBatch && r.queue.Len() > 0 {
			m := r.queue.Front().Value.(*waitingRenewal)
			m.leave()
			if m.ctx.Err() == nil { // else its lease has ended
				m.batch = b
				b.members = append(b.members, m)
				close(m.sent)
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
	r.nextLocked()
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
