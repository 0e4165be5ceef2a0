package lock

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
)

// Renewals of many leases go to a backend.BatchRenewer together. As long as few
// are under way each goes out by itself, at once. When there are more the others
// queue, and whatever has queued when a request ends is the next batch. So there is
// no delay to gather company, and the busier the service, the larger the batches.

const (
	aloneAtMost   = 8   // requests under way, up to which a renewal goes out by itself
	batchAtMost   = 256 // renewals in a batch
	batchesAtMost = 4   // under way
	// batchTimeout frees the place of a batch that hangs. Its members may give up sooner.
	batchTimeout = 10 * time.Second
	// patience is for how long a queue that does not move is waited in. Past it renewals go
	// out by themselves, some at a time: requests that hang delay no other for longer,
	// and a service that is merely slow is not overrun.
	patience      = 50 * time.Millisecond
	overdueAtOnce = 16
)

// renewals is the gate of one client.
type renewals struct {
	client *Client
	b      backend.BatchRenewer

	mu      sync.Mutex
	off     bool          // the backend cannot, as it is deployed
	alone   int           // under way by themselves
	batches int           // under way
	queue   list.List     // of *member
	overdue *time.Timer   // while the queue is not empty: looks whether it has moved
	moved   time.Time     // when a batch was last taken from the queue
	pace    time.Duration // what the last request took that was answered
}

// member is a renewal in the queue or in a batch.
type member struct {
	backend.Renewal
	ctx    context.Context
	queued time.Time
	answer chan error    // has room for the only one
	at     *list.Element // in the queue; nil once it has left it
	in     *batch        // nil until it is in one
}

// batch is a request for several members.
type batch struct {
	members []*member
	waiting int // members that have not given up
	ctx     context.Context
	cancel  context.CancelFunc
}

func newRenewals(c *Client) *renewals {
	b, ok := c.b.(backend.BatchRenewer)
	if !ok {
		return nil
	}
	return &renewals{client: c, b: b}
}

// renew is g.Renew, by itself or, unless alone is set, perhaps in a batch, and tells
// which. The caller must be noted with client.begin, and ctx must have a deadline.
func (r *renewals) renew(ctx context.Context, g backend.Grant, ttl time.Duration, alone bool) (together bool, err error) {
	if m := r.enter(ctx, g, ttl, alone); m != nil {
		err := r.wait(m)
		if errors.Is(err, errors.ErrUnsupported) {
			r.never()
		} else if err != errAlone { //nolint:errorlint // the very value
			return true, err
		}
	}
	sent, returned := time.Now(), false
	defer func() { r.ended(nil, time.Since(sent), returned && (err == nil || errors.Is(err, ErrLost))) }()
	err = g.Renew(ctx, ttl)
	returned = true
	return false, err
}

// enter returns nil if the renewal is to go out by itself.
func (r *renewals) enter(ctx context.Context, g backend.Grant, ttl time.Duration, alone bool) *member {
	r.mu.Lock()
	defer r.mu.Unlock()
	if alone || r.off || r.alone+r.batches < aloneAtMost && r.queue.Len() == 0 {
		r.alone++
		return nil
	}
	m := &member{Renewal: backend.Renewal{Grant: g, TTL: ttl}, ctx: ctx, queued: time.Now(), answer: make(chan error, 1)}
	m.at = r.queue.PushBack(m)
	r.sendLocked(batchAtMost)
	r.lookLocked()
	return m
}

// never lets every renewal go out by itself from now on, the caller's to begin with.
func (r *renewals) never() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.off = true
	r.alone++
}

// errAlone tells a member that it is to go out by itself, and counted so.
var errAlone = errors.New("alone")

// wait returns the answer of the member's batch, the end of its context, or errAlone:
// at the latest when a quarter of its time has passed, which is an eighth of the trust
// that it has left, or half of it if the queue moves.
func (r *renewals) wait(m *member) error {
	late := time.NewTimer(m.time() / 4)
	defer late.Stop()
	for {
		select {
		case err := <-m.answer:
			return err
		case <-m.ctx.Done():
			select {
			case err := <-m.answer: // in time, which a busy process notices late
				return err
			default:
			}
			if r.giveUp(m) { // it may have been executed
				return backend.Uncertain(contextError(m.ctx))
			}
			return contextError(m.ctx)
		case <-late.C:
			if again := r.late(m); again > 0 {
				late.Reset(again)
			}
		}
	}
}

// time is how long the member had when it came.
func (m *member) time() time.Duration {
	d, ok := m.ctx.Deadline()
	if !ok {
		return batchTimeout
	}
	return d.Sub(m.queued)
}

// late takes a member out of the queue that has been there for too long, or returns
// when to ask again.
func (r *renewals) late(m *member) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.at == nil {
		return 0 // in a batch, or told to go
	}
	if again := time.Until(m.queued.Add(m.time() / 2)); again > 0 && time.Since(r.moved) < r.patienceLocked() {
		return again
	}
	r.aloneLocked(m)
	return 0
}

func (r *renewals) aloneLocked(m *member) {
	r.queue.Remove(m.at)
	m.at = nil
	r.alone++
	m.answer <- errAlone
}

// patienceLocked is longer for a service that has turned out to be far away.
func (r *renewals) patienceLocked() time.Duration { return max(patience, 2*r.pace) }

// lookLocked lets those out of a queue that has not moved for a while, as many as may
// be under way, and looks again when the next is overdue.
func (r *renewals) lookLocked() {
	wait := r.patienceLocked()
	for r.queue.Len() > 0 {
		m := r.queue.Front().Value.(*member)
		since := m.queued
		if r.moved.After(since) {
			since = r.moved
		}
		left := time.Until(since.Add(wait))
		switch {
		case left > 0:
			wait = left
		case r.alone < overdueAtOnce:
			r.aloneLocked(m)
			continue
		}
		if r.overdue == nil {
			r.overdue = time.AfterFunc(wait, r.look)
		} else {
			r.overdue.Reset(wait)
		}
		return
	}
	if r.overdue != nil {
		r.overdue.Stop()
	}
}

func (r *renewals) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lookLocked()
}

// giveUp takes out a member whose context has ended. It reports whether it was in a
// batch, whose context ends with the last of its members.
func (r *renewals) giveUp(m *member) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.at != nil {
		r.queue.Remove(m.at)
		m.at = nil
		return false
	}
	if m.in == nil { // told to go, or sendLocked has noticed
		r.alone -= len(m.answer)
		return false
	}
	if m.in.waiting--; m.in.waiting == 0 {
		m.in.cancel()
	}
	return true
}

// ended follows the end of a request, of one renewal if b is nil: what has queued
// meanwhile is sent.
func (r *renewals) ended(b *batch, took time.Duration, answered bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b == nil {
		r.alone--
	} else {
		r.batches--
	}
	if answered {
		r.pace = took
	}
	r.sendLocked(1)
	r.lookLocked()
}

// sendLocked sends what is queued if it is at least that many.
func (r *renewals) sendLocked(least int) {
	for r.batches < batchesAtMost && r.queue.Len() >= least {
		if !r.client.beginLate() {
			return // cannot be: who waits has noted it with the client
		}
		b := &batch{}
		for len(b.members) < batchAtMost && r.queue.Len() > 0 {
			m := r.queue.Remove(r.queue.Front()).(*member)
			m.at = nil
			if m.ctx.Err() == nil { // what is being released is renewed no more
				m.in = b
				b.members = append(b.members, m)
			}
		}
		if len(b.members) == 0 {
			r.client.done()
			return
		}
		b.ctx, b.cancel = context.WithTimeout(r.client.work, batchTimeout)
		b.waiting = len(b.members)
		r.batches++
		r.moved = time.Now()
		go r.send(b)
	}
}

// send renews the members of a batch, and gives each its answer whatever the
// driver does.
func (r *renewals) send(b *batch) {
	defer r.client.done()
	defer b.cancel()
	sent := time.Now()
	all := make([]backend.Renewal, len(b.members))
	for i, m := range b.members {
		all[i] = m.Renewal
	}
	errs, err := r.batch(b.ctx, all)
	answered := false
	for i, m := range b.members {
		if err == nil {
			answered = answered || errs[i] == nil || errors.Is(errs[i], ErrLost)
			m.answer <- errs[i]
		} else {
			m.answer <- err
		}
	}
	r.ended(b, time.Since(sent), answered)
}

// batch calls the driver. An error is that of all, for want of one each.
func (r *renewals) batch(ctx context.Context, all []backend.Renewal) (errs []error, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = backend.Uncertain(fmt.Errorf("RenewBatch of backend %s panicked: %v", r.client.caps.Name, p))
		}
	}()
	errs = r.b.RenewBatch(ctx, all)
	if len(errs) != len(all) {
		return nil, backend.Uncertain(fmt.Errorf("RenewBatch of backend %s returned %d errors for %d grants", r.client.caps.Name, len(errs), len(all)))
	}
	return errs, nil
}
