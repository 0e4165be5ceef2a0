package redislock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
	"github.com/interlock-go/lock/redislock/internal/server"
)

const (
	pushDelay  = time.Second // how long a notification may take
	maxSettled = 1 << 16

	minBackoff            = 20 * time.Millisecond // before an attempt repeats a request that failed
	maxBackoff            = time.Second
	minResubscribeBackoff = 10 * time.Millisecond
)

// expectQueued is an argument of ACQUIRE like protocol.JoinQueue: the attempt should be
// in the queue already.
const expectQueued = "2"

var errReplicas = errors.New("redis: too few replicas")

// TryAcquire makes one attempt in one round trip.
func (b *Backend) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	a := b.newAttempt(req, holding)
	r, err := a.request(ctx, protocol.NoQueue)
	if err == nil && r.Status == protocol.No {
		b.follow(a.keys, r.Num(6))
		err = r.LockedError()
	}
	if err != nil {
		a.unregister()
		return nil, err
	}
	return a.grant(r), nil
}

// Acquire acquires the key. It waits in the queue until the server pushes a grant or a
// poll finds one.
func (b *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	a := b.newAttempt(req, waiting)
	defer a.polls.timer.Stop()
	w := &waiter{
		attempt: a, channel: b.subs.use(b.channelOf(a.keys), a),
		backoff: minBackoff, resubscribeBackoff: minResubscribeBackoff,
	}
	defer w.channel.unuse(a)
	defer b.stopAsking(a)
	g, err := w.wait(ctx)
	switch {
	case err == nil:
		return g, nil
	case backend.OutcomeUnknown(err):
		a.unregisterSettled()
	default:
		a.unregister()
	}
	return nil, err
}

// request sends one request to acquire. Without an error the status of the reply is Yes
// or No.
func (a *attempt) request(ctx context.Context, queue string) (protocol.Reply, error) {
	b, k := a.b, a.keys
	args := []any{b.proc.ChannelPrefix(), b.proc.OwnerAddress(a.req.Owner), protocol.Millis(a.req.TTL), queue, a.req.Metadata}
	if !a.req.Share.Exclusive() {
		args = append(args, protocol.FormatShare(a.req.Share))
	}
	r, replicas, err := b.eval(ctx, acquireScript, b.keysOf(a.req), args...)
	if err != nil {
		if backend.OutcomeUnknown(err) {
			a.unanswered.Store(true)
		}
		return r, err
	}
	switch {
	case r.Status == protocol.Abandoned:
		return r, fmt.Errorf("%w: attempt %s was abandoned", backend.ErrInvalid, a.req.Owner)
	case r.Status == protocol.OtherCapacity:
		b.follow(k, r.Num(1))
		return r, capacityError(a.req.Share, r)
	case r.Status == protocol.Yes && replicas < b.opt.replicas:
		err := b.tooFewReplicas(replicas)
		if _, failed := a.release(ctx); failed != nil {
			return r, backend.Uncertain(fmt.Errorf("%w; and releasing: %w", err, failed))
		}
		return r, backend.NotExecuted(err)
	}
	return r, r.CheckType(k)
}

// release releases the key. It writes a tombstone if the server may still execute a
// request of the attempt.
func (a *attempt) release(ctx context.Context) (protocol.Reply, error) {
	b, k := a.b, a.keys
	r, err := b.srv.Eval(ctx, releaseScript, b.keysOf(a.req),
		b.proc.ChannelPrefix(), a.req.Owner, protocol.Tombstone(a.unanswered.Load()))
	b.follow(k, r.Num(0))
	return r, err
}

// follow looks at the lock again when the provisional grant ends that a request of this process
// made. left is its length in ms, 0 if there is none, -1 to look at once.
func (b *Backend) follow(k protocol.Keys, left int64) {
	b.srv.Follow(k, left, advanceScript, k.Script(), func() []any { return []any{b.proc.ChannelPrefix()} })
}

// grant returns the grant of a reply. It returns nil if the attempt must ask again.
func (a *attempt) grant(r protocol.Reply) *grant {
	if !a.req.Share.Exclusive() {
		a.b.follow(a.keys, r.Num(4))
	}
	if !a.accept() {
		return nil
	}
	// the server rounds the lease up to whole milliseconds
	return a.newGrant(r.Token(), r.Sent.Add(min(r.Left(), a.req.TTL)), r.Str(3))
}

// acceptPush returns the grant of a notification. It returns nil if the attempt must
// ask again, which returns the same grant for the whole TTL: if less than half of the
// provisional TTL is left, if the server's clock is unknown, if the grant was revoked,
// and if replicas must acknowledge the grant.
func (a *attempt) acceptPush(p pushedGrant) *grant {
	a.mu.Lock()
	until := a.clock.until(p)
	a.mu.Unlock()
	if a.b.opt.replicas > 0 || time.Until(until) < p.TTL/2 || !a.accept() {
		return nil
	}
	return a.newGrant(p.Token, until, p.Slots)
}

// waiter is an attempt while it waits in Acquire.
type waiter struct {
	*attempt
	channel            *channel
	queued             bool      // a reply showed that the attempt is in the queue
	failingSince       time.Time // the first of consecutive failures; zero after a success
	backoff            time.Duration
	resubscribeBackoff time.Duration
}

// wait polls, and waits for a notification or the next poll in between.
func (w *waiter) wait(ctx context.Context) (*grant, error) {
	for {
		g, again, err := w.poll(ctx)
		if g != nil {
			return g, nil
		}
		if again {
			continue
		}
		if err != nil {
			if err = w.failed(ctx, err); err != nil {
				return nil, err
			}
		}
		if g, err := w.await(ctx); g != nil || err != nil {
			return g, err
		}
	}
}

// poll sends one request and schedules the next. The attempt joins the queue only if it
// is subscribed, so that the server can notify it; a free key costs one round trip in
// either case. again asks for the next poll at once.
func (w *waiter) poll(ctx context.Context) (g *grant, again bool, err error) {
	l := w.channel.open(ctx)
	queue := w.beginPoll(l)
	r, err := w.requestWithin(ctx, queue)
	if err != nil {
		return nil, false, err
	}
	if queue == expectQueued {
		w.checkDelivery(r, l)
	}
	if r.Status == protocol.Yes {
		g := w.grant(r)
		return g, g == nil, nil
	}
	if l == nil {
		if err := w.channel.wait(ctx); err != nil {
			return nil, false, err
		}
		w.failingSince = time.Time{}
		return nil, true, nil
	}
	w.inQueue(ctx, r, l)
	return nil, false, nil
}

// beginPoll prepares a poll while l is subscribed, and returns its queue argument.
func (w *waiter) beginPoll(l *listener) string {
	w.clearRevoked()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.polls.repeat = false
	switch l {
	case nil:
		return protocol.NoQueue
	case w.delivery.listener:
		return expectQueued
	}
	return protocol.JoinQueue
}

// inQueue handles the reply that the attempt is in the queue.
func (w *waiter) inQueue(ctx context.Context, r protocol.Reply, l *listener) {
	if !w.queued && w.req.OnWait != nil {
		w.req.OnWait(r.LockedError())
	}
	w.queued, w.failingSince, w.backoff = true, time.Time{}, minBackoff
	asks := w.b.asks(w.attempt, r.Num(7) == 1)
	w.mu.Lock()
	w.delivery.listener, w.delivery.queued = l, r.Sent
	w.clock.observe(r)
	w.polls.replied(r, w.req.TTL)
	if asks {
		w.polls.within(r.Sent.Add(protocol.ProvisionalTTL + protocol.PollSlack()))
	}
	w.mu.Unlock()
	if r.Num(5) == 1 {
		w.resubscribeBackoff = minResubscribeBackoff
		return
	}
	// the subscription is on another server than the one that replied
	server.Sleep(ctx, w.resubscribeBackoff)
	w.resubscribeBackoff = min(2*w.resubscribeBackoff, maxBackoff)
	w.b.subs.lost(l, errNotDelivered)
}

// requestWithin is request. For an attempt in the queue it takes at most the TTL.
func (w *waiter) requestWithin(ctx context.Context, queue string) (protocol.Reply, error) {
	if !w.queued {
		return w.request(ctx, queue)
	}
	limit := max(w.req.TTL, 100*time.Millisecond)
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := w.request(within, queue)
	if err != nil && server.Ended(within) != nil && server.Ended(ctx) == nil {
		err = backend.Uncertain(fmt.Errorf("redis: no reply within %v", limit)) // not the caller's deadline
	}
	return r, err
}

// failed handles a failed poll. It returns nil if the attempt polls again: in the queue
// an attempt tolerates failures for its TTL, before it only those of a migrating slot.
func (w *waiter) failed(ctx context.Context, err error) error {
	if w.failingSince.IsZero() {
		w.failingSince = time.Now()
	}
	tooLong := time.Since(w.failingSince) >= w.req.TTL
	unanswered, replicas := w.unanswered.Load(), errors.Is(err, errReplicas)
	if end := server.Ended(ctx); end != nil {
		return w.interrupted(end)
	}
	switch {
	case !w.queued && (!redis.IsTryAgainError(err) || unanswered || tooLong):
		if unanswered {
			return err
		}
		return backend.NotExecuted(err)
	case replicas && !unanswered:
		return err // released, and not in the queue
	case replicas, tooLong, errors.Is(err, backend.ErrInvalid), errors.Is(err, backend.ErrClosed):
		if isUncertain(err) {
			return err
		}
		return backend.Uncertain(err)
	}
	w.polls.timer.Reset(w.backoff)
	w.backoff = min(2*w.backoff, maxBackoff, max(w.req.TTL/12, minBackoff))
	return nil
}

// await waits for a grant, the next poll, or the end of ctx or of the backend. It
// returns neither a grant nor an error if the attempt must poll.
func (w *waiter) await(ctx context.Context) (*grant, error) {
	select {
	case p := <-w.pushed:
		return w.acceptPush(p), nil
	case <-w.polls.timer.C:
		return nil, nil
	case <-ctx.Done():
		return nil, w.interrupted(ctx.Err())
	case <-w.b.srv.Life.Done():
		return nil, w.interrupted(backend.ErrClosed)
	}
}

// interrupted returns the error of an attempt that ends before it has a grant.
func (w *waiter) interrupted(err error) error {
	if w.queued || w.unanswered.Load() {
		return backend.Uncertain(err)
	}
	return backend.NotExecuted(err)
}

// Abandon makes sure that nothing remains of an attempt. It writes a tombstone, which
// refuses late requests, unless every request of the attempt is known to have had a reply.
func (b *Backend) Abandon(ctx context.Context, req backend.Request) error {
	return b.abandon(ctx, req, b.unregister(req.Owner))
}

// unregister ends an attempt. It reports whether the server may still execute a request of it.
func (b *Backend) unregister(owner string) (late bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.attempts, owner)
	_, settled := b.settled[owner]
	return !settled
}

func (b *Backend) abandon(ctx context.Context, req backend.Request, late bool) error {
	c := b.abandonment(req, late)
	r, err := b.srv.Eval(ctx, abandonScript, c.Keys, c.Args...)
	if err == nil {
		b.abandoned(req, r)
	}
	return err
}

// abandonment returns the call of ABANDON for an attempt.
func (b *Backend) abandonment(req backend.Request, late bool) server.Call {
	return server.Call{
		Keys: b.keysOf(req),
		Args: []any{b.proc.ChannelPrefix(), req.Owner, protocol.Tombstone(late), b.proc.Member(req)},
	}
}

// abandoned handles the reply of ABANDON.
func (b *Backend) abandoned(req backend.Request, r protocol.Reply) {
	b.mu.Lock()
	delete(b.settled, req.Owner)
	b.mu.Unlock()
	b.follow(b.proc.Keys(req.Key), r.Num(0))
}
