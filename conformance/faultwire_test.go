package conformance_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
)

// wire is the network between a broken client and its service, within this process.
type wire struct {
	mu                       sync.Mutex
	delay                    time.Duration // each way
	cut                      bool
	losesRequests, losesRest bool
	replies                  int // that arrive before the rest is lost, if counting
	counting                 bool
	changed                  chan struct{} // closed when one of them changes
	idle, busy, dead         int           // connections
	keepsDead                bool          // a request without answer does not end the other connections that are as old
}

var (
	_ conformance.Link               = (*wire)(nil)
	_ conformance.ReplySilencer      = (*wire)(nil)
	_ conformance.ConnectionSilencer = (*wire)(nil)
)

func (w *wire) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	if w.changed != nil {
		close(w.changed)
	}
	w.changed = make(chan struct{})
}

func (w *wire) Cut()                  { w.set(func() { w.cut = true }) }
func (w *wire) Blackhole()            { w.set(func() { w.losesRequests = true }) }
func (w *wire) BlackholeReplies()     { w.set(func() { w.losesRest = true }) }
func (w *wire) Delay(d time.Duration) { w.set(func() { w.delay = d }) }
func (w *wire) Heal() {
	w.set(func() { w.cut, w.losesRequests, w.losesRest, w.counting, w.delay = false, false, false, false, 0 })
}
func (w *wire) SilenceAfterReplies(n int) { w.set(func() { w.replies, w.counting = n, true }) }

func (w *wire) SilenceOpen() { w.set(func() { w.dead, w.idle = w.idle, 0 }) }

// keepDead makes requests go over one dead connection after another.
func (w *wire) keepDead() {
	if w != nil {
		w.keepsDead = true
	}
}

// connect takes a connection of the pool for an exchange, and reports whether it is one that fell silent.
func (w *wire) connect() (dead bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead > 0 {
		w.dead--
		return true
	}
	w.busy++
	w.idle = max(w.idle, w.busy)
	return false
}

func (w *wire) disconnect() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy--
}

// times ends a request without answer, after the limit of this client.
func (w *wire) times(ctx context.Context) error {
	limit := time.NewTimer(500 * time.Millisecond)
	defer limit.Stop()
	select {
	case <-ctx.Done():
		return backend.Uncertain(ctx.Err())
	case <-limit.C:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.keepsDead {
		w.dead = 0
	}
	return backend.Uncertain(errors.New("no answer"))
}

// losesReply counts a reply, and reports whether it is lost.
func (w *wire) losesReply() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.counting && w.replies == 0 {
		w.losesRest = true
	}
	w.replies--
	return w.losesRest
}

// silence waits for the end of ctx or for the next change, which breaks the connection.
func (w *wire) silence(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return backend.Uncertain(ctx.Err())
	case <-changed:
		return backend.Uncertain(errors.New("connection reset"))
	}
}

// exchange sends a request over w, or executes it at once if w is nil.
func exchange[T any](ctx context.Context, w *wire, execute func() (T, error)) (none T, err error) {
	if w == nil {
		return execute()
	}
	w.mu.Lock()
	if w.changed == nil {
		w.changed = make(chan struct{})
	}
	delay, cut, losesRequests, changed := w.delay, w.cut, w.losesRequests, w.changed
	w.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return none, backend.NotExecuted(ctx.Err())
	case cut:
		return none, backend.NotExecuted(errors.New("connection refused"))
	case losesRequests:
		return none, w.silence(ctx, changed)
	}
	if w.connect() {
		return none, w.times(ctx)
	}
	defer w.disconnect()
	time.Sleep(delay) // the request is on its way
	v, err := execute()
	if w.losesReply() {
		return none, w.silence(ctx, changed)
	}
	time.Sleep(delay) // the reply is on its way
	return v, err
}

// wired is a grant whose requests cross a wire.
type wired struct {
	backend.Grant
	w     *wire
	mu    sync.Mutex
	until time.Time
}

func (g *wired) Until() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.until
}

func (g *wired) Renew(ctx context.Context, ttl time.Duration) error {
	sent := time.Now()
	_, err := exchange(ctx, g.w, func() (struct{}, error) { return struct{}{}, g.Grant.Renew(ctx, ttl) })
	if err == nil {
		g.mu.Lock()
		g.until = sent.Add(ttl)
		g.mu.Unlock()
	}
	return err
}

func (g *wired) Release(ctx context.Context) error {
	_, err := exchange(ctx, g.w, func() (struct{}, error) { return struct{}{}, g.Grant.Release(ctx) })
	return err
}

// plain is a wrap without the optional interfaces: no queue, no Break, no Inspect.
type plain struct{ backend.Backend }

func (p plain) Capabilities() backend.Capabilities {
	c := p.Backend.Capabilities()
	c.Order, c.Wake, c.PushesLoss = backend.Unordered, backend.WakePoll, false
	return c
}

// overWire makes the suite's faulty clients cross a wire.
func overWire(h *conformance.Harness, s *service) {
	h.OpenFaulty = func(context.Context) (backend.Backend, conformance.Link, error) {
		link := &wire{}
		return s.open(link), link, nil
	}
}
