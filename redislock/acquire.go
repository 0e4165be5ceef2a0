package redislock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
)

var errReplicas = errors.New("redis: too few replicas")

// TryAcquire makes one attempt in one round trip.
func (b *Backend) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	a := b.newAttempt(req, false)
	r, err := a.ask(ctx, queueNo)
	if err == nil && r.status == no {
		err = lockedError(r)
	}
	if err != nil {
		a.drop()
		return nil, err
	}
	return a.grant(r), nil
}

// Acquire takes the key, waiting in the queue for its turn.
func (b *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	a := b.newAttempt(req, true)
	defer a.timer.Stop()
	g, err := a.wait(ctx)
	if isUncertain(err) {
		a.settle()
	} else if err != nil {
		a.drop()
	}
	return g, err
}

// How a request to acquire waits in the queue.
const (
	queueNo    = "0"
	queueEnter = "1"
	queueStay  = "2" // it believes to stand there
)

// ask sends one request to acquire. In a reply without an error the status is yes
// or no.
func (a *attempt) ask(ctx context.Context, queue string) (reply, error) {
	b, k := a.b, a.keys
	names := []string{k.lock, k.queue, k.fence, k.tombstone(a.req.Owner)}
	args := []any{b.channelPrefix(), b.party(a.req.Owner), millis(a.req.TTL), queue, a.req.Metadata}
	var r reply
	var err error
	got := b.opt.replicas
	if b.opt.replicas > 0 {
		r, got, err = b.evalWait(ctx, acquireScript, names, args...)
	} else {
		r, err = b.eval(ctx, acquireScript, names, args...)
	}
	if err != nil {
		if isUncertain(err) {
			a.dirty.Store(true)
		}
		return r, err
	}
	switch r.status {
	case wrongType:
		return r, wrongTypeError(k.lock, r.str(0))
	case abandoned:
		return r, fmt.Errorf("%w: attempt %s was abandoned", backend.ErrInvalid, a.req.Owner)
	case yes:
		if got < b.opt.replicas {
			err := fmt.Errorf("%w: %d of %d acknowledged within %v", errReplicas, got, b.opt.replicas, b.opt.replicaTimeout)
			if _, rerr := a.release(ctx); rerr != nil {
				err = backend.Uncertain(fmt.Errorf("%w; and releasing: %w", err, rerr))
			}
			return r, err
		}
	}
	return r, nil
}

// release gives the key back. It leaves a tombstone only if a request of the
// attempt may still be on its way; no request is ever sent twice.
func (a *attempt) release(ctx context.Context) (reply, error) {
	b, k := a.b, a.keys
	return b.eval(ctx, releaseScript, []string{k.lock, k.queue, k.fence, k.tombstone(a.req.Owner)},
		b.channelPrefix(), a.req.Owner, tombstone(a.dirty.Load()))
}

func tombstone(needed bool) string {
	if !needed {
		return "0"
	}
	return fmt.Sprint(tombstoneFor.Milliseconds())
}

// grant is nil if the attempt must ask again.
func (a *attempt) grant(r reply) *grant {
	if !a.granted() {
		return nil
	}
	// the server keeps whole milliseconds, rounded up
	return &grant{a: a, token: r.token(), until: r.sent.Add(min(r.left(), a.req.TTL))}
}

// wait asks, queues, and waits for the push. Its grant is nil with an error.
func (a *attempt) wait(ctx context.Context) (backend.Grant, error) {
	b := a.b
	ch := b.subs.use(b.channelOf(a.keys), a)
	defer ch.unuse(a)
	var queued bool
	var failing time.Time // since when the service does not answer
	backoff, deaf := 20*time.Millisecond, 10*time.Millisecond
	for {
		// Nobody may hand over to a process that does not listen yet: the first
		// request waits in the queue only if the channel is open, and a free key
		// costs one round trip in either case.
		l := ch.open(ctx)
		queue := queueNo
		a.mu.Lock()
		a.again = false
		if l != nil {
			queue = queueEnter
			if l == a.listener {
				queue = queueStay
			}
		}
		a.mu.Unlock()
		a.mend()
		r, err := a.askWithin(ctx, queue, queued)
		if err == nil && queue == queueStay {
			a.deaf(r, l)
		}
		if err == nil && r.status == yes {
			if g := a.grant(r); g != nil {
				return g, nil
			}
			continue
		}
		if err == nil {
			if l != nil {
				failing = time.Time{}
				if !queued && a.req.OnWait != nil {
					a.req.OnWait(lockedError(r))
				}
				queued, backoff = true, 20*time.Millisecond
				a.mu.Lock()
				a.listener, a.queued = l, r.sent
				a.mu.Unlock()
				a.held(r)
				if r.num(5) == 0 { // it listens at another server than the one that answers
					sleep(ctx, deaf)
					deaf = min(2*deaf, time.Second)
					b.subs.lost(l, errDeaf)
				} else {
					deaf = 10 * time.Millisecond
				}
			} else if err = ch.wait(ctx); err == nil {
				failing = time.Time{}
				continue
			}
		}
		if err != nil {
			if failing.IsZero() {
				failing = time.Now()
			}
			end := ended(ctx)
			switch {
			case end != nil:
				return nil, a.gaveUp(end, queued)
			case !queued && (!redis.IsTryAgainError(err) || a.dirty.Load() || time.Since(failing) >= a.req.TTL):
				return nil, err // a slot that migrates is waited for
			case errors.Is(err, errReplicas) && !a.dirty.Load():
				return nil, err // released, and no longer in the queue
			case errors.Is(err, errReplicas), errors.Is(err, backend.ErrInvalid), errors.Is(err, backend.ErrClosed), time.Since(failing) >= a.req.TTL:
				return nil, backend.Uncertain(err)
			}
			a.timer.Reset(backoff) // ride it out
			backoff = min(2*backoff, time.Second, max(a.req.TTL/12, 20*time.Millisecond))
		}
		select {
		case p := <-a.pushed:
			if g := a.take(p); g != nil {
				return g, nil
			}
		case <-a.timer.C:
		case <-ctx.Done():
			return nil, a.gaveUp(ctx.Err(), queued)
		case <-b.life.Done():
			return nil, a.gaveUp(backend.ErrClosed, queued)
		}
	}
}

// askWithin is ask, which for an attempt in the queue takes no longer than the
// service may fail.
func (a *attempt) askWithin(ctx context.Context, queue string, queued bool) (reply, error) {
	if !queued {
		return a.ask(ctx, queue)
	}
	limit := max(a.req.TTL, 100*time.Millisecond)
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := a.ask(within, queue)
	if err != nil && ended(within) != nil && ended(ctx) == nil {
		err = backend.Uncertain(fmt.Errorf("redis: no answer within %v", limit)) // not the caller's deadline
	}
	return r, err
}

// gaveUp is the error of an attempt that was ended from outside.
func (a *attempt) gaveUp(err error, queued bool) error {
	if !queued && !a.dirty.Load() {
		return err // nothing of it remains
	}
	return backend.Uncertain(err)
}

// take turns a push into a grant. It is nil if the attempt must ask again, which
// returns the same grant for its whole time: when little of the claim is left,
// when the clock pair is no longer good, when it was broken, and where replicas have
// to acknowledge what the releaser wrote.
func (a *attempt) take(p push) backend.Grant {
	until := a.until(p)
	if a.b.opt.replicas > 0 || time.Until(until) < p.claim/2 {
		return nil
	}
	if !a.granted() {
		return nil
	}
	return &grant{a: a, token: p.token, until: until}
}

// Abandon makes sure that nothing remains of an attempt. A tombstone refuses its
// requests that arrive later, unless each of them is known to have had its answer.
func (b *Backend) Abandon(ctx context.Context, req backend.Request) error {
	b.mu.Lock()
	_, settled := b.settled[req.Owner]
	delete(b.attempts, req.Owner)
	b.mu.Unlock()
	err := b.abandon(ctx, req, !settled)
	if err == nil {
		b.mu.Lock()
		delete(b.settled, req.Owner)
		b.mu.Unlock()
	}
	return err
}

func (b *Backend) abandon(ctx context.Context, req backend.Request, late bool) error {
	k := b.keys(req.Key)
	_, err := b.eval(ctx, abandonScript, []string{k.lock, k.queue, k.fence, k.tombstone(req.Owner)},
		b.channelPrefix(), req.Owner, tombstone(late), b.member(req))
	return err
}
