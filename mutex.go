package lock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
)

// mutex is the Mutex of a plain key.
type mutex struct {
	client *Client
	name   string
	key    any // the holdKey of the name
	cfg    mutexConfig
	err    error // why it can never be locked
}

func (m *mutex) Name() string { return m.name }

func (m *mutex) Lock(ctx context.Context) (*Lease, error)    { return m.acquire(ctx, "lock") }
func (m *mutex) TryLock(ctx context.Context) (*Lease, error) { return m.acquire(ctx, "try") }

func (m *mutex) acquire(ctx context.Context, op string) (*Lease, error) {
	a := &attempt{m: m, start: time.Now(), values: ctx}
	returned := false
	defer func() {
		if !returned {
			a.failed(m.client.wrap(op, m.name, errPanicked))
		}
	}()
	l, err := m.tracked(ctx, op, a)
	returned = true
	if err != nil {
		err = m.client.wrap(op, m.name, err)
		a.failed(err)
		return nil, err
	}
	return l, nil
}

// tracked keeps Close waiting while an attempt is under way, and ends the attempt
// when Close begins.
func (m *mutex) tracked(ctx context.Context, op string, a *attempt) (*Lease, error) {
	c := m.client
	if m.err != nil {
		return nil, m.err
	}
	if ctx.Err() != nil {
		return nil, contextError(ctx)
	}
	if h, _ := ctx.Value(m.key).(*hold); h != nil && h.end() == nil {
		if !m.cfg.reentry {
			return nil, fmt.Errorf("%w by this very context, which would wait for itself; WithReentry allows nesting", ErrLocked)
		}
		if l := newLease(ctx, h); h.add(l) {
			l.nested = true
			return l, nil
		} // else it ended this instant
	}
	if !c.begin() {
		return nil, ErrClosed
	}
	defer c.done()
	bound, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })()

	l, err := a.run(bound, op == "lock")
	if err == nil || c.ctx.Err() == nil || ctx.Err() != nil {
		return l, err
	}
	if errors.Is(err, ErrUncertain) {
		return nil, fmt.Errorf("%w: %w", ErrClosed, ErrUncertain)
	}
	return nil, ErrClosed
}

// attempt is one call of Lock or TryLock. To the backend it may be several
// attempts, one after the other, each with an owner id of its own.
type attempt struct {
	m      *mutex
	start  time.Time
	values context.Context // the caller's: its values go to the lease and to observers

	mu     sync.Mutex
	locked *LockedError // who holds the lock, as far as is known; nil before the wait
	over   bool         // observers have been told how it ended
}

func (a *attempt) run(ctx context.Context, wait bool) (*Lease, error) {
	for tries := 0; ; tries++ {
		l, err := a.once(ctx, wait)
		if err == nil || !errors.Is(err, errTooLate) || !wait {
			return l, err
		}
		// The grant came when its trust was already over: the backend is slower than
		// the TTL. Once more may be luck, more often is a configuration error.
		if tries == 2 {
			return nil, err
		}
	}
}

// errTooLate: the backend granted the lock, but so slowly that the trust was over.
var errTooLate = errors.New("granted too late: the answer took as long as the lease; use a longer TTL")

func (a *attempt) once(ctx context.Context, wait bool) (*Lease, error) {
	if !wait {
		return a.try(ctx)
	}
	acquire := a.m.client.acquire
	if acquire == nil {
		return a.poll(ctx)
	}
	req, hook := a.request()
	req.OnWait = a.waits
	sent := time.Now()
	returned := false
	defer func() {
		if !returned && a.m.client.handOff == nil { // an observer panicked: the attempt may stand in the queue
			a.m.client.abandon(req)
		}
	}()
	g, err := acquire(ctx, req)
	returned = true
	if err != nil {
		return nil, a.refused(ctx, req, err)
	}
	return a.granted(req, hook, g, sent)
}

// tryTimeout bounds an attempt that does not wait, whatever its context. One that
// takes as long as the lease gives none.
func tryTimeout(ttl time.Duration) time.Duration {
	return min(max(ttl/2, 100*time.Millisecond), 10*time.Second)
}

func (a *attempt) try(ctx context.Context) (*Lease, error) {
	req, hook := a.request()
	tctx, cancel := context.WithTimeout(ctx, tryTimeout(req.TTL))
	defer cancel()
	sent := time.Now()
	g, err := a.m.client.tryAcquire(tctx, req)
	if err != nil {
		return nil, a.refused(ctx, req, err)
	}
	return a.granted(req, hook, g, sent)
}

// poll waits on a backend without a queue: it tries again after a delay that
// grows from 5 to 250 ms, jittered so that waiters do not move in step, and not
// beyond what is left of the holder's lease.
func (a *attempt) poll(ctx context.Context) (*Lease, error) {
	const least, most = 5 * time.Millisecond, 250 * time.Millisecond
	answered := time.Now()
	for delay := least; ; delay = min(2*delay, most) {
		l, err := a.try(ctx)
		if err == nil {
			return l, nil
		}
		pause := delay/2 + mrand.N(delay/2)
		var locked *LockedError
		switch {
		case ctx.Err() != nil:
			return nil, withContext(ctx, err)
		case errors.As(err, &locked):
			answered = time.Now()
			a.waits(locked)
			if left := locked.Holder.Left; left > 0 && left < pause {
				pause = left + time.Millisecond + mrand.N(least)
			}
		case errors.Is(err, ErrLocked):
			answered = time.Now()
			a.waits(&LockedError{})
		case !a.waiting() || time.Since(answered) > a.m.cfg.ttl || !transient(err):
			return nil, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			if errors.Is(err, ErrLocked) {
				return nil, a.ended(ctx)
			}
			return nil, fmt.Errorf("%w; %w", a.ended(ctx), err)
		}
	}
}

// transient tells whether a failure may pass by itself.
func transient(err error) bool {
	return !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrClosed) && !errors.Is(err, errors.ErrUnsupported)
}

func (a *attempt) request() (backend.Request, *lossHook) {
	hook := &lossHook{client: a.m.client}
	return backend.Request{
		Key:      a.m.name,
		Owner:    newOwner(),
		TTL:      a.m.cfg.ttl,
		Metadata: a.m.cfg.metadata,
		OnLost:   hook.fire,
	}, hook
}

func newOwner() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

func (a *attempt) waiting() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.locked != nil
}

// ended is the error of a wait that ctx ended: it says who holds the lock.
func (a *attempt) ended(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.locked == nil {
		return contextError(ctx)
	}
	return fmt.Errorf("%w; %w", contextError(ctx), a.locked)
}

// refused turns the backend's error into the caller's, after making sure that
// nothing of the request remains on the backend.
func (a *attempt) refused(ctx context.Context, req backend.Request, err error) error {
	var other *otherAttempt
	if errors.As(err, &other) {
		req, err = other.req, other.error
	}
	if errors.Is(err, ErrUncertain) && a.m.client.abandon(req) {
		err = settled{err}
	}
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		// A socket may notice the deadline a moment before the context does.
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	if ctx.Err() == nil {
		return err
	}
	// Beside the end of the wait belongs what the backend had to say, if it is more than that.
	if s, ok := err.(settled); ok && s.said() == ctx.Err().Error() || err == ctx.Err() { //nolint:errorlint // the bare error, not one that wraps it
		return a.ended(ctx)
	}
	if errors.Is(err, ErrLocked) {
		return fmt.Errorf("%w; %w", contextError(ctx), err)
	}
	return fmt.Errorf("%w; %w", a.ended(ctx), err)
}

// settled is an error whose outcome was unknown until the attempt was abandoned:
// it certainly has no effect any more.
type settled struct{ err error }

func (s settled) Error() string   { return s.said() + "; undone" }
func (s settled) said() string    { return strings.TrimPrefix(s.err.Error(), ErrUncertain.Error()+": ") }
func (s settled) Is(t error) bool { return t != ErrUncertain && errors.Is(s.err, t) }
func (s settled) As(t any) bool   { return errors.As(s.err, t) }

// granted makes the lease of a grant.
func (a *attempt) granted(req backend.Request, hook *lossHook, g backend.Grant, sent time.Time) (*Lease, error) {
	c := a.m.client
	now := time.Now()
	h := &hold{
		client: c, cfg: &a.m.cfg, req: req, grant: g, acquired: now, from: now,
		over: make(chan struct{}), turn: make(chan struct{}, 1),
		ttl: req.TTL, kept: now.Add(req.TTL),
	}
	if !c.expires() {
		sent = now // the service counts no time: a fixed lease begins when it is had
	} else if !now.Before(trustedUntil(sent, req.TTL, g)) {
		h.cleanUp("release of a late grant")
		return nil, errTooLate
	}
	l := newLease(a.values, h)
	h.leases = []*Lease{l}
	if !c.remember(h) {
		l.cancel(ErrClosed)
		h.cleanUp("release of a grant to a closed client")
		return nil, ErrClosed
	}
	h.start(sent)
	hook.bind(h)
	returned := false
	defer func() {
		defer h.grantTold()
		if !returned && h.finish(c.wrap("hold", req.Key, ErrReleased)) { // an observer panicked: nobody has the lease
			h.cleanUp("release after a panic")
			c.released(a.values, h, nil)
		}
	}()
	a.acquired(h, now.Sub(a.start))
	returned = true
	return l, nil
}

// lossHook brings a loss that the backend pushes to the hold, which may not exist
// yet when it comes.
type lossHook struct {
	client *Client
	mu     sync.Mutex
	h      *hold
	reason error
}

func (k *lossHook) fire(reason error) {
	if reason == nil {
		reason = ErrLost
	}
	k.mu.Lock()
	first := k.reason == nil
	k.reason = reason
	h := k.h
	k.mu.Unlock()
	if h == nil || !first || !k.client.beginLate() {
		return
	}
	go func() { // observers run in it, and a driver must not be held up
		defer k.client.done()
		h.lose(reason)
	}()
}

func (k *lossHook) bind(h *hold) {
	k.mu.Lock()
	k.h = h
	reason := k.reason
	k.mu.Unlock()
	if reason != nil {
		h.lose(reason)
	}
}

// contextError is the error of a context that has ended, with its cause if that
// says more.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || cause == nil || errors.Is(cause, err) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// withContext makes the error of an ended context reachable in err.
func withContext(ctx context.Context, err error) error {
	if ctx.Err() == nil || errors.Is(err, ctx.Err()) {
		return err
	}
	return fmt.Errorf("%w; %w", contextError(ctx), err)
}
