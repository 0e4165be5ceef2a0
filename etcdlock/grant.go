package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

const watchAfter = 50 * time.Millisecond // age of a grant: most are released before

type grant struct {
	a     *attempt
	s     *session // the lease of the key
	key   string
	token int64 // revision that created the key
	slots []int // permits; constant

	watchTimer *time.Timer // nil without Request.OnLost
	stopWatch  context.CancelFunc

	mu       sync.Mutex // guards the fields below
	ttl      time.Duration
	lost     error
	released bool
}

var (
	_ backend.Keeper     = (*grant)(nil)
	_ backend.Downgrader = (*grant)(nil)
	_ backend.SlotHolder = (*grant)(nil)
)

func (a *attempt) newGrant(s *session, revision int64, slots ...int) *grant {
	g := &grant{a: a, s: s, key: a.key, token: revision, slots: slots, ttl: a.req.TTL}
	if a.req.OnLost != nil {
		var ctx context.Context
		ctx, g.stopWatch = context.WithCancel(a.b.ctx)
		g.watchTimer = time.AfterFunc(time.Hour, func() { g.watchKey(ctx) })
		g.watchTimer.Reset(watchAfter) // the timer may fire: both fields are set
	}
	if cause := s.add(g); cause != nil {
		g.lose(cause, a.req.OnLost)
	}
	return g
}

// add registers g: the end of the session is its loss from now on. It returns the
// cause if the session has ended already.
func (s *session) add(g *grant) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		s.grants[g] = struct{}{}
	}
	return s.cause
}

func (s *session) remove(g *grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.grants, g)
}

// lose ends the grant as lost, unless it was lost or released before. It calls report,
// if that is not nil, before it removes what may remain of the attempt: the core may not
// release a lost grant, and the servers may still execute an unanswered request.
func (g *grant) lose(cause error, report func(error)) {
	g.mu.Lock()
	ended := g.lost != nil || g.released
	if !ended {
		g.lost = cause
	}
	g.mu.Unlock()
	if ended {
		return
	}
	g.endWatch()
	if report != nil {
		report(cause)
	}
	if !g.a.unanswered.Load() {
		g.forget()
		return
	}
	g.a.b.retryInBackground(func(ctx context.Context) error {
		_, err := g.a.b.remove(ctx, g.s, g.key, g.a.req.Owner, true)
		if err == nil {
			g.forget()
		}
		return err
	})
}

func (g *grant) endWatch() {
	if g.watchTimer != nil {
		g.watchTimer.Stop()
		g.stopWatch()
	}
}

func (g *grant) watchKey(ctx context.Context) {
	b := g.a.b
	if ctx.Err() != nil || !b.enter() {
		return
	}
	defer b.wg.Done()
	b.watch(ctx, g.key, []clientv3.OpOption{clientv3.WithFilterPut()},
		func(ctx context.Context) error {
			if err := g.verify(ctx); errors.Is(err, backend.ErrLost) {
				g.lose(err, g.a.req.OnLost)
			}
			return nil // after another error the next renewal verifies
		},
		func([]*clientv3.Event) bool {
			g.lose(g.keyGone(), g.a.req.OnLost)
			return false
		})
}

func (g *grant) keyGone() error {
	return fmt.Errorf("%w: etcd key %.200q with revision %d is gone", backend.ErrLost, g.key, g.token)
}

func (g *grant) Token() uint64 { return uint64(g.token) }

func (g *grant) Until() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.s.until(g.ttl)
}

// ended returns why the grant was lost, or nil.
func (g *grant) ended() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lost
}

// Renew verifies the key, and keeps the lease alive unless that was done for another
// grant at most 1 s or a tenth of the TTL before. It takes one round trip. It returns
// ErrInvalid if ttl is longer than the TTL of the lease.
func (g *grant) Renew(ctx context.Context, ttl time.Duration) error {
	return g.a.b.do(ctx, func(ctx context.Context) error {
		if lost := g.ended(); lost != nil {
			return lost
		}
		if most := g.s.ttl(); ttl > most {
			return backend.Invalid("ttl", ttl, fmt.Sprintf("at most %v, the TTL of the lease that holds the lock", most))
		}
		err := g.confirm(ctx)
		if err == nil {
			err, _ = g.s.ended()
		}
		if errors.Is(err, backend.ErrLost) {
			g.lose(err, nil)
		}
		if err != nil {
			return err
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.lost == nil {
			g.ttl = ttl
		}
		return g.lost
	})
}

// Keep implements backend.Keeper. The session keeps the lease alive, so d may be longer
// than its TTL; if the process dies, the servers free the key after the TTL.
func (g *grant) Keep(ctx context.Context, d time.Duration) error {
	return g.Renew(ctx, min(d, g.s.ttl()))
}

// confirm verifies the key and refreshes the lease at the same time.
func (g *grant) confirm(ctx context.Context) error {
	refreshed := make(chan error, 1)
	go func() { refreshed <- g.s.refresh(ctx, min(g.s.ttl()/10, time.Second)) }()
	err := g.verify(ctx)
	if e := <-refreshed; e != nil && err == nil {
		err = e
		if !errors.Is(err, backend.ErrLost) {
			err = fmt.Errorf("keep the lease alive: %w", g.a.b.readError(ctx, e))
		}
	}
	return err
}

// verify returns ErrLost if the key is gone, or if it was deleted and put again.
func (g *grant) verify(ctx context.Context) error {
	r, err := g.a.b.client.Get(ctx, g.key, clientv3.WithKeysOnly())
	if err != nil {
		return g.a.b.readError(ctx, err)
	}
	if len(r.Kvs) == 0 || r.Kvs[0].CreateRevision != g.token {
		return g.keyGone()
	}
	return nil
}

// Release is one round trip.
func (g *grant) Release(ctx context.Context) error {
	return g.a.b.do(ctx, func(ctx context.Context) error {
		g.mu.Lock()
		g.released = true // from now on the end of the key is no loss
		g.mu.Unlock()
		g.endWatch()
		existed, err := g.a.b.remove(ctx, g.s, g.key, g.a.req.Owner, g.a.unanswered.Load())
		if err != nil {
			return err
		}
		g.forget()
		if !existed {
			return fmt.Errorf("%w: etcd key %.200q did not exist any more", backend.ErrLost, g.key)
		}
		return nil
	})
}

// forget unregisters a grant of which nothing remains at the servers.
func (g *grant) forget() {
	g.s.remove(g)
	g.a.forget()
}
