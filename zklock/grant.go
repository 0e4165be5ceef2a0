package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
)

// watchDelay is how long a grant is held before its node is watched. Most grants are
// released sooner, and a watch costs a request.
const watchDelay = 50 * time.Millisecond

// grant is a node that holds the key, or a share of it.
type grant struct {
	a     *attempt
	s     *session
	path  string
	token uint64
	slots []int // constant

	// for the caller of Downgrade
	share       backend.Share
	unsure      bool            // a request to downgrade was not answered
	downgrading <-chan struct{} // of such a request, see attempt.pending

	until atomic.Pointer[time.Time]
	watch atomic.Pointer[node] // of path, nil if it is not watched

	// ended ends when the grant is released or known to be lost; its cause says why.
	ended context.Context
	end   context.CancelCauseFunc
}

var (
	_ backend.Downgrader = (*grant)(nil)
	_ backend.SlotHolder = (*grant)(nil)
)

var errReleased = fmt.Errorf("%w: it was released", backend.ErrLost)

// grant makes the grant of an attempt that is the first in the queue, or fits. Its TTL begins
// at asked. w is the watch of its node, or nil.
func (a *attempt) grant(asked time.Time, w *node) *grant {
	g := &grant{a: a, s: a.s, path: a.path, token: a.token, slots: a.slots, share: a.req.Share}
	g.ended, g.end = context.WithCancelCause(context.Background())
	g.watch.Store(w)
	g.extend(asked, a.req.TTL)
	a.granted.Store(g)
	if g.s.startCall() == nil {
		go g.monitor()
	}
	return g
}

// extend moves Until to the end of the session. The ttl of a renewal may end before.
func (g *grant) extend(asked time.Time, ttl time.Duration) {
	until := g.s.clock.times().until()
	if latest := asked.Add(ttl); until.After(latest) {
		until = latest
	}
	g.until.Store(&until)
}

func (g *grant) Token() uint64    { return g.token }
func (g *grant) Until() time.Time { return *g.until.Load() }

// monitor calls Request.OnLost when the node is deleted or the session ends.
func (g *grant) monitor() {
	defer g.s.calls.Done()
	ctx, cancel := context.WithCancel(g.s.ending)
	defer cancel()
	defer context.AfterFunc(g.ended, cancel)()
	if g.watch.Load() == nil {
		sleep(ctx, watchDelay)
	}
	for ctx.Err() == nil {
		if w := g.watch.Load(); w != nil {
			select {
			case <-w.event:
				g.watch.Store(nil)
			case <-ctx.Done():
			}
			continue
		}
		timeout := g.s.clock.times().timeout
		within, cancel := withLimit(ctx, timeout/3)
		if err := g.verify(within); err != nil { // Renew handles errors other than a loss
			sleep(ctx, timeout/12)
		}
		cancel()
	}
	if err := g.s.endErr(); sessionEnded(err) {
		_ = g.setLost(fmt.Errorf("%w: %w", backend.ErrLost, err))
	}
}

// verify checks that the node exists, and watches it from now on.
func (g *grant) verify(ctx context.Context) error {
	w, err := g.s.watch(ctx, g.path)
	switch {
	case err != nil:
		return err
	case w.stat == nil:
		return g.setLost(fmt.Errorf("%w: the node %.200q was deleted", backend.ErrLost, g.path))
	case uint64(w.stat.Czxid) != g.token || w.stat.EphemeralOwner != g.s.conn.SessionID():
		return g.setLost(fmt.Errorf("%w: the node %.200q belongs to another owner", backend.ErrLost, g.path))
	}
	g.watch.Store(&w)
	return nil
}

// setLost ends the grant and calls OnLost, unless it has ended. It returns why the grant
// has ended.
func (g *grant) setLost(err error) error {
	g.end(err)
	if cause := context.Cause(g.ended); !errors.Is(cause, err) { // it had ended
		return cause
	}
	if g.a.req.OnLost != nil {
		g.a.req.OnLost(err)
	}
	go g.forgetAttempt()
	return err
}

// forgetAttempt forgets the attempt of a lost grant, which the core does not release.
func (g *grant) forgetAttempt() {
	a := g.a
	a.busy <- struct{}{}
	if a.granted.Load() == g && a.path == g.path {
		a.forget()
	}
	<-a.busy
}

// Renew makes a majority confirm the session, with one request for all grants of the
// session that renew at the time. When that is answered, the watch of the node has
// reported every earlier deletion. If the watch may have been lost with a connection,
// Renew reads the node again.
func (g *grant) Renew(ctx context.Context, ttl time.Duration) error {
	if limit := max(g.s.clock.times().timeout, g.a.req.TTL); ttl > limit {
		return backend.Invalid("ttl", ttl, fmt.Sprintf("at most %v, the timeout of the session that holds the lock", limit))
	}
	if err := context.Cause(g.ended); err != nil {
		return err
	}
	asked := time.Now()
	err := g.s.confirm(ctx)
	w := g.watch.Load()
	if err == nil && (w == nil || w.conn == 0 || w.conn != g.s.connNumber() || !w.silent()) {
		err = g.verify(ctx)
	}
	if sessionEnded(err) {
		return g.setLost(fmt.Errorf("%w: %w", backend.ErrLost, err))
	}
	if err == nil {
		err = context.Cause(g.ended)
	}
	if err != nil {
		return err
	}
	g.extend(asked, ttl)
	return nil
}

// Release deletes the node. No other attempt has a node of that name.
func (g *grant) Release(ctx context.Context) error {
	a := g.a
	g.end(errReleased)
	if err := a.lock(ctx); err != nil {
		return backend.NotExecuted(err)
	}
	defer a.unlock()
	err := g.s.deleteNode(ctx, g.path)
	switch {
	case sessionEnded(err):
		err = fmt.Errorf("%w: %w", backend.ErrLost, err)
	case errors.Is(err, zk.ErrNoNode):
		err = fmt.Errorf("%w: the node %.200q does not exist", backend.ErrLost, g.path)
	case err != nil:
		return err
	}
	if a.path == g.path {
		a.forget()
	}
	return err
}

// Guard returns an operation for a Multi of the caller. If the lease, a *lock.Lease of
// this backend, no longer holds its lock, the Multi fails with [zk.ErrNoNode] and none of
// its operations is executed. The service checks that in the same transaction, so the
// resource needs no token. The Multi may use any connection to the same service.
//
// Guard returns ErrLost if the lease has ended. With lock.WithLocalHandOff pass the
// lease's BackendHold: the operation then checks the grant, which the same client may
// have passed on.
func (b *Backend) Guard(lease interface{ Owner() string }) (*zk.CheckVersionRequest, error) {
	a := b.attempt(lease.Owner())
	if a == nil {
		return nil, fmt.Errorf("%w: the lease has ended, or is of another backend", backend.ErrLost)
	}
	g := a.granted.Load()
	if g == nil {
		return nil, errors.New("zookeeper: the lease does not hold its lock yet")
	}
	return &zk.CheckVersionRequest{Path: g.path, Version: -1}, nil
}
