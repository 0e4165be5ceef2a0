package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
)

// armAfter is how long a grant is held before its node is watched: most are
// released sooner, and the watch is a request.
const armAfter = 50 * time.Millisecond

type grant struct {
	a     *attempt
	s     *session
	path  string
	token uint64
	same  *grant // of an attempt that was sent twice: the first, which looks after the node

	over     chan struct{} // closed by stop
	overOnce sync.Once

	mu    sync.Mutex
	until time.Time
	watch *watched
	lost  error
}

// grant makes the grant of an attempt that is first in the queue. asked is when its
// TTL begins.
func (a *attempt) grant(asked time.Time, w *watched) backend.Grant {
	g := &grant{a: a, s: a.s, path: a.path, token: a.token, watch: w, over: make(chan struct{})}
	g.extend(asked, a.req.TTL)
	a.g = g
	a.b.mu.Lock()
	a.guarded = a.path
	a.b.mu.Unlock()
	if g.s.begin() == nil {
		go g.guard()
	}
	return g
}

// extend moves the end. It is that of the session, whose timeout is the TTL, except
// on a caller's connection.
func (g *grant) extend(asked time.Time, ttl time.Duration) {
	until := g.s.clock.until()
	if most := asked.Add(ttl); until.After(most) {
		until = most
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.until = until
}

func (g *grant) Token() uint64 { return g.token }

func (g *grant) Until() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.until
}

// stop ends the looking after the node.
func (g *grant) stop() { g.overOnce.Do(func() { close(g.over) }) }

// guard tells the holder when its node, or its session, is gone.
func (g *grant) guard() {
	defer g.s.calls.Done()
	arm := time.NewTimer(armAfter)
	defer arm.Stop()
	for {
		var gone <-chan zk.Event
		if w := g.watching(); w != nil {
			gone = w.gone
		}
		select {
		case <-g.over:
			return
		case <-g.s.over:
			if err := g.s.ended(); sessionGone(err) {
				_ = g.lose(fmt.Errorf("%w: %w", backend.ErrLost, err))
			}
			return
		case <-arm.C:
			if g.watching() == nil {
				ctx, cancel := context.WithTimeout(g.s.ending, g.s.clock.period()/3)
				_ = g.verify(ctx) // a loss is told; anything else is the renewal's matter
				cancel()
				if g.watching() == nil {
					arm.Reset(g.s.clock.period() / 12)
				}
			}
		case <-gone:
			g.mu.Lock()
			g.watch = nil
			g.mu.Unlock()
			arm.Reset(0)
		}
	}
}

func (g *grant) watching() *watched {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.watch
}

// lose tells of the loss, once, unless the node is being given up.
func (g *grant) lose(err error) error {
	g.mu.Lock()
	first := g.lost == nil
	if first {
		g.lost = err
	}
	err = g.lost
	g.mu.Unlock()
	select {
	case <-g.over:
		return err
	default:
	}
	if first && g.a.req.OnLost != nil {
		g.a.req.OnLost(err)
	}
	g.stop()
	if first {
		go g.drop()
	}
	return err
}

// drop forgets the attempt of a grant that is lost: nobody will release it.
func (g *grant) drop() {
	a := g.a
	a.turn <- struct{}{}
	if a.g == g && a.path == g.path {
		a.gone()
	}
	<-a.turn
}

// verify looks whether the node is there, and watches it from now on.
func (g *grant) verify(ctx context.Context) error {
	w := g.s.watch(ctx, g.path)
	switch {
	case w.err != nil:
		return explain(w.err, g.path)
	case w.stat == nil:
		return g.lose(fmt.Errorf("%w: the node %.200q was deleted", backend.ErrLost, g.path))
	case uint64(w.stat.Czxid) != g.token || w.stat.EphemeralOwner != g.s.conn.SessionID():
		return g.lose(fmt.Errorf("%w: the node %.200q is another's", backend.ErrLost, g.path))
	}
	g.mu.Lock()
	g.watch = &w
	g.mu.Unlock()
	return nil
}

// Renew lets a majority confirm the session, with one request for all grants of
// the session that renew at the time. Every deletion before that has been told by
// the watch of the node when the answer comes; where the watch may have been lost
// with a connection the node is looked at again.
func (g *grant) Renew(ctx context.Context, ttl time.Duration) error {
	if g.same != nil {
		err := g.same.Renew(ctx, ttl)
		g.mu.Lock()
		g.until = g.same.Until()
		g.mu.Unlock()
		return err
	}
	if most := max(g.s.clock.period(), g.a.req.TTL); ttl > most {
		return backend.Invalid("ttl", ttl, fmt.Sprintf("at most %v, the timeout of the session that holds the lock", most))
	}
	if err := g.ended(); err != nil {
		return err
	}
	asked := time.Now()
	if err := g.s.confirm(ctx); err != nil {
		return g.failed(err)
	}
	w := g.watching()
	if w == nil || w.connection == 0 || w.connection != g.s.connection() || !w.intact() {
		if err := g.verify(ctx); err != nil {
			return g.failed(err)
		}
	}
	if err := g.ended(); err != nil {
		return err
	}
	g.extend(asked, ttl)
	return nil
}

// ended is the loss, if it is known.
func (g *grant) ended() error {
	g.mu.Lock()
	lost := g.lost
	g.mu.Unlock()
	if lost != nil {
		return lost
	}
	select {
	case <-g.over:
		return fmt.Errorf("%w: it was released", backend.ErrLost)
	default:
		return nil
	}
}

// failed is the error of an exchange that did not succeed.
func (g *grant) failed(err error) error {
	if sessionGone(err) {
		return g.lose(fmt.Errorf("%w: %w", backend.ErrLost, err))
	}
	return err
}

// Release deletes the node. Its name is this attempt's alone, so that it is never
// another's.
func (g *grant) Release(ctx context.Context) error {
	a := g.a
	if g.same != nil {
		g.same.stop()
	} else {
		g.stop()
	}
	if err := a.lock(ctx); err != nil {
		return err
	}
	defer a.unlock()
	err := deleteNode(ctx, g.s, g.path)
	switch {
	case sessionGone(err):
		err = fmt.Errorf("%w: %w", backend.ErrLost, err)
	case errors.Is(err, zk.ErrNoNode):
		err = fmt.Errorf("%w: the node %.200q is gone", backend.ErrLost, g.path)
	case err != nil:
		return err
	}
	if a.path == g.path {
		a.gone()
	}
	return err
}
