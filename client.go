package lock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock/backend"
)

// Client gives out mutexes of one backend and looks after their leases. It is
// safe for concurrent use.
type Client struct {
	b    backend.Backend
	caps backend.Capabilities
	cfg  clientConfig
	seq  uint64 // in the order in which the clients of this process were made

	// How the backend is asked for a key; acquire is nil if it has no queue.
	tryAcquire, acquire func(context.Context, backend.Request) (backend.Grant, error)
	handOff             *handOff // nil without local hand-off

	renewals *renewals // nil: each lease is renewed by itself

	ctx  context.Context // ends when Close begins, with ErrClosed
	stop context.CancelCauseFunc
	work context.Context // ends when Close gives up waiting for what is under way
	kill context.CancelFunc

	mu     sync.Mutex
	closed bool
	holds  map[*hold]struct{}
	active int           // operations and cleaners under way
	idle   chan struct{} // closed when the client is closed and active is zero

	closeDone chan struct{} // closed when the first Close has returned
	closeErr  error         // what it returned
}

var clients atomic.Uint64

// Open opens the backend named by a URL, whose driver must have been imported:
//
//	mem://shared                          goroutines of one process
//	file:///var/lib/app/locks             processes of one machine
//	redis://user:password@host:6379/0     everybody who reaches the server
//
// Besides the parameters of the driver every URL accepts ttl (as WithTTL),
// renew=false (as WithoutRenewal) and local_hand_off=true (as WithLocalHandOff);
// options given in code have precedence. Open fails within a bounded time if the
// service does not answer. ctx bounds opening only.
func Open(ctx context.Context, url string, opts ...Option) (*Client, error) {
	u, err := backend.ParseURL(url)
	if err != nil {
		return nil, &Error{Op: "open", Err: err}
	}
	var fromURL []Option
	if ttl := u.Params.Duration("ttl", 0); ttl != 0 {
		fromURL = append(fromURL, WithTTL(ttl))
	}
	if !u.Params.Bool("renew", true) {
		fromURL = append(fromURL, WithoutRenewal())
	}
	if u.Params.Bool("local_hand_off", false) {
		fromURL = append(fromURL, WithLocalHandOff())
	}
	b, err := backend.Open(ctx, u)
	if err != nil {
		return nil, &Error{Op: "open", Backend: u.Scheme, Err: err}
	}
	c, err := New(b, append(fromURL, opts...)...)
	if err != nil {
		_ = b.Close(ctx) // nothing is held yet, and err is the error that matters
		return nil, err
	}
	return c, nil
}

// New makes a client of a backend, which the client closes when it is closed
// itself. If New returns an error, b is still the caller's.
func New(b backend.Backend, opts ...Option) (*Client, error) {
	c := &Client{
		b:     b,
		caps:  b.Capabilities(),
		cfg:   clientConfig{mutex: defaultMutexConfig()},
		seq:   clients.Add(1),
		holds: map[*hold]struct{}{},
		idle:  make(chan struct{}), closeDone: make(chan struct{}),
	}
	for _, o := range opts {
		o.applyClient(&c.cfg)
	}
	c.tryAcquire = b.TryAcquire
	w, queues := b.(backend.Waiter)
	if queues {
		c.acquire = w.Acquire
	}
	if c.cfg.handOff {
		if !queues {
			return nil, c.wrap("open", "", fmt.Errorf("local hand-off: %w by backend %s, which has no queue", errors.ErrUnsupported, c.caps.Name))
		}
		c.handOff = newHandOff(c)
		c.tryAcquire, c.acquire = c.handOff.tryAcquire, c.handOff.acquire
		c.caps = handOffCapabilities(c.caps)
	}
	for _, r := range c.cfg.require {
		if !r.Met(c.caps) {
			return nil, c.wrap("open", "", fmt.Errorf("required %s: %w by backend %s", r.Name, errors.ErrUnsupported, c.caps.Name))
		}
	}
	if err := c.cfg.mutex.validate(c.caps); err != nil {
		return nil, c.wrap("open", "", err)
	}
	c.renewals = newRenewals(c)
	c.ctx, c.stop = context.WithCancelCause(context.Background())
	c.work, c.kill = context.WithCancel(context.Background())
	if n, ok := b.(backend.Notifier); ok {
		n.Notify(c.notice)
	}
	return c, nil
}

// Mutex returns the lock of a name: 1 to backend.MaxName bytes of any value.
// Nothing is sent. A bad name or option is reported by Lock and TryLock.
func (c *Client) Mutex(name string, opts ...MutexOption) Mutex {
	m := &mutex{client: c, name: name, key: holdKey{c, name}, cfg: c.cfg.mutex}
	for _, o := range opts {
		o.applyMutex(&m.cfg)
	}
	if m.err = validName(name, c.caps); m.err == nil && len(opts) > 0 {
		m.err = m.cfg.validate(c.caps)
	}
	return m
}

// Capabilities returns what the backend declares to guarantee, and what local
// hand-off leaves of that.
func (c *Client) Capabilities() backend.Capabilities { return c.caps }

// Close takes at most closeTimeout, and at least closeFloor is granted to what is
// held even if its context has ended before.
const (
	closeTimeout = 10 * time.Second
	closeFloor   = 2 * time.Second
)

// Close ends all waits and leases with ErrClosed, frees what is held, waits for
// cleaning up that is under way, and closes the backend. It takes at most until
// ctx ends, or 2 s if that is sooner, and at most about 10 s, beside up to 3 s for
// closing the backend: what is not freed by then ends with its TTL, and Close
// returns an error. A second call returns what the first returned. It must not be
// called from an Observer.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		<-c.closeDone
		return c.closeErr
	}
	c.closed = true
	c.active++ // for close, so that idle cannot be reached before its end
	held := slices.Collect(maps.Keys(c.holds))
	c.mu.Unlock()
	defer close(c.closeDone) // also if an observer panics
	c.closeErr = c.close(ctx, held)
	return c.closeErr
}

func (c *Client) close(ctx context.Context, held []*hold) error {
	ctx, cancel := closeContext(ctx)
	defer cancel()
	c.stop(ErrClosed)
	err := c.releaseAll(ctx, held)
	c.done()
	select {
	case <-c.idle:
	case <-ctx.Done():
		if err == nil {
			err = fmt.Errorf("%w: cleaning up was still under way", ErrUncertain)
		}
	}
	c.kill()
	// Whatever is still under way ends now, and then the backend is closed: both are
	// given a moment of their own.
	moment := 3 * time.Second
	if ctx.Err() != nil {
		moment = time.Second
	}
	select {
	case <-c.idle:
	case <-time.After(time.Second): // a driver that ignores its context
	}
	last, cancelLast := context.WithTimeout(context.WithoutCancel(ctx), moment)
	defer cancelLast()
	if berr := c.b.Close(last); err == nil {
		err = berr
	}
	if err == nil {
		return nil
	}
	return c.wrap("close", "", err)
}

// closeContext ends with ctx, but not before closeFloor has passed: closing under
// a context that has ended, as at the end of a program, must not strand locks.
func closeContext(ctx context.Context) (context.Context, context.CancelFunc) {
	start := time.Now()
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(closeFloor - time.Since(start))
		defer t.Stop()
		select {
		case <-t.C:
		case <-own.Done():
		}
		cancel()
	})
	return own, func() { stop(); cancel() }
}

// releaseAll ends all holds first and then frees them, some at a time.
func (c *Client) releaseAll(ctx context.Context, held []*hold) error {
	ended := held[:0]
	for _, h := range held {
		if h.finish(c.wrap("hold", h.req.Key, ErrClosed)) {
			ended = append(ended, h)
		}
	}
	const parallel = 32
	next := make(chan *hold, len(ended))
	for _, h := range ended {
		next <- h
	}
	close(next)
	freed := make(chan error, len(ended))
	for range min(parallel, len(ended)) {
		go func() {
			for h := range next {
				err := h.closeGrant(ctx)
				c.released(h.values(), h, err)
				freed <- err
			}
		}()
	}
	var first error
	failed := 0
	for range ended {
		select {
		case err := <-freed:
			if err == nil || errors.Is(err, ErrLost) {
				continue
			}
			if failed++; first == nil {
				first = err
			}
		case <-ctx.Done(): // a driver that ignores its context
			return fmt.Errorf("%w: not all locks were freed in time", ErrUncertain)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d locks were not freed, the first: %w", failed, first)
	}
	return nil
}

// begin notes an operation under way, unless the client is closed.
func (c *Client) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.active++
	return true
}

// beginLate notes cleaning up under way, which closing waits for. It is refused
// only when closing is over.
func (c *Client) beginLate() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed && c.active == 0 {
		return false
	}
	c.active++
	return true
}

func (c *Client) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active--
	if c.closed && c.active == 0 {
		close(c.idle)
	}
}

// expires tells whether the service ends a hold by its clock.
func (c *Client) expires() bool { return c.caps.Loss != backend.LossProcess }

func (c *Client) remember(h *hold) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.holds[h] = struct{}{}
	return true
}

func (c *Client) forget(h *hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.holds, h)
}

// wrap adds where an error comes from, once.
func (c *Client) wrap(op, name string, err error) error {
	if done, ok := err.(*Error); ok { //nolint:errorlint // one that is wrapped may be about another lock
		return done
	}
	return &Error{Op: op, Backend: c.caps.Name, Name: name, Err: err}
}
