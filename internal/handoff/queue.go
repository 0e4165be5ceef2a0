package handoff

import (
	"container/list"
	"context"
	"time"

	"github.com/interlock-go/lock/backend"
)

// localQueue holds the requests for one key with the same TTL and metadata, in order of
// arrival: a grant that one of them used can be passed to the next as it is.
type localQueue struct {
	b        *Backend
	key      string
	ttl      time.Duration
	metadata string

	requests list.List // of *localRequest
	attempt  *attempt
	grant    *sharedGrant
}

// localRequest is a call of Acquire that waits.
type localRequest struct {
	ctx     context.Context
	req     backend.Request
	elem    *list.Element // nil when it has been served
	sent    bool          // the attempt in flight was sent for it, among others
	leaving bool          // its context has ended, and the attempt in flight is being cancelled
	waiting bool          // OnWait has been or will be called
	waits   chan *backend.LockedError
	result  chan turnResult // capacity 1
}

type turnResult struct {
	turn backend.Grant
	err  error
}

// queueLocked returns the queue of a request. It adds one if there is none.
func (b *Backend) queueLocked(req backend.Request) *localQueue {
	for _, q := range b.queues[req.Key] {
		if q.ttl == req.TTL && q.metadata == req.Metadata {
			return q
		}
	}
	q := &localQueue{b: b, key: req.Key, ttl: req.TTL, metadata: req.Metadata}
	b.queues[req.Key] = append(b.queues[req.Key], q)
	return q
}

// forgetLocked deletes a queue that is not used any more.
func (q *localQueue) forgetLocked() {
	if q.requests.Len() > 0 || q.attempt != nil || q.grant != nil {
		return
	}
	rest := q.b.queues[q.key]
	for i, other := range rest {
		if other == q {
			rest = append(rest[:i:i], rest[i+1:]...)
			break
		}
	}
	if len(rest) == 0 {
		delete(q.b.queues, q.key)
	} else {
		q.b.queues[q.key] = rest
	}
}

func (q *localQueue) headLocked() *localRequest {
	if e := q.requests.Front(); e != nil {
		return e.Value.(*localRequest)
	}
	return nil
}

func (q *localQueue) removeLocked(w *localRequest) {
	q.requests.Remove(w.elem)
	w.elem = nil
	q.forgetLocked()
}

// serveLocked gives a request its result and removes it from the queue.
func (q *localQueue) serveLocked(w *localRequest, r turnResult) {
	if w.elem != nil {
		q.requests.Remove(w.elem)
		w.elem = nil
	}
	w.result <- r
}

// notifyWaitLocked makes Acquire call OnWait, once.
func (w *localRequest) notifyWaitLocked(locked *backend.LockedError) {
	if !w.waiting {
		w.waiting = true
		w.waits <- locked
	}
}

// sendLocked sends an attempt to the inner backend if the head of the queue needs one: the
// queue has no grant, or its grant cannot be passed on any more. In that case the attempt
// waits in the queue of the backend when the grant is released.
func (q *localQueue) sendLocked() {
	head := q.headLocked()
	if head == nil || q.attempt != nil {
		return
	}
	if s := q.grant; s != nil && s.canPassLocked(time.Now()) {
		s.startTimerLocked()
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(head.ctx))
	a := &attempt{b: q.b, q: q, req: head.req, cancel: cancel}
	a.req.OnWait, a.req.OnLost = a.onWait, a.onLost
	for e := q.requests.Front(); e != nil; e = e.Next() {
		e.Value.(*localRequest).sent = true
	}
	q.attempt = a
	if !q.b.cleaner.Tasks.BeginCleanup() {
		cancel()
		a.failLocked(backend.ErrClosed)
		return
	}
	go a.run(ctx)
}
