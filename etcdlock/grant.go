package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

// watchAfter is when a grant's key begins to be watched: most are released before.
const watchAfter = 50 * time.Millisecond

type grant struct {
	a     *attempt
	key   string
	first *session // under which the key was made, as requests still on their way would
	token int64

	mu       sync.Mutex
	ttl      time.Duration // asked for last
	s        *session      // the lease of its key; the attempt has joined it
	others   []*session    // perhaps the lease of its key instead: joined too, and kept alive
	lost     error
	released bool
	over     bool // forgotten: it has no lease any more
	watch    *time.Timer
	stop     context.CancelFunc // ends the watch
}

func (a *attempt) grant(s *session, revision int64) *grant {
	g := &grant{a: a, key: a.key, first: a.first, token: revision, ttl: a.req.TTL, s: s}
	if a.req.OnLost != nil {
		var ctx context.Context
		ctx, g.stop = context.WithCancel(a.b.life)
		g.watch = time.AfterFunc(watchAfter, func() { g.follow(ctx) })
	}
	if cause := g.bind(s); cause != nil { // from here on it may be lost
		g.lose(cause)
	}
	return g
}

// bind lets the end of a session be the loss of the grant. It returns why the
// session has ended already, if so.
func (g *grant) bind(s *session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		s.grants[g] = struct{}{}
	}
	return s.cause
}

func (g *grant) unbind(s *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.grants, g)
}

// lose tells of the loss of the grant, once.
func (g *grant) lose(cause error) {
	if g.end(cause) {
		if g.a.req.OnLost != nil {
			g.a.req.OnLost(cause)
		}
		g.clear() // not before: the key may still keep others out
	}
}

// end notes that the grant is lost. It is true for the first.
func (g *grant) end(cause error) bool {
	g.mu.Lock()
	first := g.lost == nil && !g.released
	if first {
		g.lost = cause
	}
	g.mu.Unlock()
	if first {
		g.endWatch()
	}
	return first
}

// clear makes sure that nothing remains of a lost grant, whose Release nobody may
// call: if one of several leases has ended its key may be under another that lives,
// and a request to acquire that had no answer may come later.
func (g *grant) clear() {
	b := g.a.b
	b.mu.Lock()
	dirty := g.a.dirty
	b.mu.Unlock()
	g.mu.Lock()
	several := len(g.others) > 0
	g.mu.Unlock()
	if !several && !dirty || !b.enter() {
		g.forget()
		return
	}
	go func() {
		defer b.wg.Done()
		for wait := 50 * time.Millisecond; !g.forgotten(); wait = min(2*wait, time.Second) {
			ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(b.life), b.opt.open)
			_, err := b.remove(ctx, g.first, g.key, g.a.req.Owner, dirty)
			cancel()
			if err == nil || !pause(b.life, wait) { // Close revokes the leases
				g.forget()
			}
		}
	}()
}

func (g *grant) forgotten() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.over
}

func (g *grant) endWatch() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.watch != nil {
		g.watch.Stop()
	}
	if g.stop != nil {
		g.stop()
	}
}

// follow watches the key.
func (g *grant) follow(ctx context.Context) {
	b := g.a.b
	if ctx.Err() != nil || !b.enter() {
		return
	}
	defer b.wg.Done()
	b.watch(ctx, g.key, []clientv3.OpOption{clientv3.WithFilterPut()},
		func(ctx context.Context) error {
			if err := g.verify(ctx); errors.Is(err, backend.ErrLost) {
				g.lose(err)
			}
			return nil // the next renewal looks too
		},
		func([]*clientv3.Event) bool {
			g.lose(g.gone())
			return false
		})
}

func (g *grant) gone() error {
	return fmt.Errorf("%w: etcd key %.200q with revision %d is gone", backend.ErrLost, g.key, g.token)
}

func (g *grant) Token() uint64 { return uint64(g.token) }

func (g *grant) Until() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	until := g.s.until(g.ttl)
	for _, s := range g.others {
		if u := s.until(g.ttl); u.Before(until) {
			until = u
		}
	}
	return until
}

// verify asks whether the key is still that of this grant.
func (g *grant) verify(ctx context.Context) error {
	r, err := g.a.b.client.Get(ctx, g.key, clientv3.WithKeysOnly())
	if err != nil {
		return g.a.b.failure(ctx, err)
	}
	if len(r.Kvs) == 0 || r.Kvs[0].CreateRevision != g.token {
		return g.gone()
	}
	return nil
}

// Renew is one round trip: it asks for the key, and keeps the lease alive if that
// was not just done for another grant. For another TTL the key is moved to the
// lease of that TTL, which leaves its revision, and so its token, as it is. To a
// little less it stays where it is.
func (g *grant) Renew(ctx context.Context, ttl time.Duration) error {
	return g.a.b.do(ctx, func(ctx context.Context) error {
		g.mu.Lock()
		lost, s, n := g.lost, g.s, seconds(ttl)
		stays := len(g.others) == 0 && n <= s.seconds
		g.mu.Unlock()
		if lost != nil {
			return lost
		}
		err := error(nil)
		if stays {
			err = g.renew(ctx, s)
		} else {
			s, err = g.move(ctx, ttl)
		}
		if err == nil {
			err, _ = s.fate()
		}
		if errors.Is(err, backend.ErrLost) {
			if g.end(err) {
				g.clear()
			}
			return err
		}
		if err == nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			if err = g.lost; err == nil { // meanwhile
				g.ttl = ttl
			}
		}
		return err
	})
}

// freshness is how old the clock of a lease may be when a grant is renewed: grants
// of one lease share its keep-alives.
func freshness(s *session) time.Duration { return min(s.ttl()/10, time.Second) }

func (g *grant) renew(ctx context.Context, s *session) error {
	alive := make(chan error, 1)
	go func() { alive <- s.refresh(ctx, freshness(s)) }()
	err := g.verify(ctx)
	if aerr := <-alive; aerr != nil && err == nil {
		err = aerr
		if !errors.Is(err, backend.ErrLost) {
			err = fmt.Errorf("keep the lease alive: %w", g.a.b.failure(ctx, aerr))
		}
	}
	return err
}

// move puts the key under the lease of another TTL. Until it is known that this
// was done both leases are kept alive.
func (g *grant) move(ctx context.Context, ttl time.Duration) (*session, error) {
	b := g.a.b
	s, err := b.session(ctx, ttl)
	if err != nil {
		return nil, err
	}
	defer s.leave()
	if err := s.refresh(ctx, freshness(s)); err != nil {
		if errors.Is(err, backend.ErrLost) {
			err = notTheGrants(ttl)
		}
		return nil, b.failure(ctx, err)
	}
	// An earlier move that had no answer may still be on its way. It compares with the
	// modification that it saw, so it fails if this one is executed before it.
	at, err := b.client.Get(ctx, g.key, clientv3.WithKeysOnly())
	if err != nil {
		return nil, b.failure(ctx, err)
	}
	if len(at.Kvs) == 0 || at.Kvs[0].CreateRevision != g.token {
		return nil, g.gone()
	}
	added, err := g.try(s)
	if err != nil {
		return nil, err
	}
	r, err := b.client.Txn(ctx).If(
		clientv3.Compare(clientv3.CreateRevision(g.key), "=", g.token),
		clientv3.Compare(clientv3.ModRevision(g.key), "=", at.Kvs[0].ModRevision),
	).Then(clientv3.OpPut(g.key, g.a.req.Metadata, clientv3.WithLease(s.id))).
		Else(clientv3.OpGet(g.key, clientv3.WithKeysOnly())).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		if added { // the key was never under it
			g.untry(s)
		}
		s.vanished()
		if !added {
			err, _ = s.fate()
			return nil, err
		}
		return nil, b.failure(ctx, notTheGrants(ttl))
	case err != nil:
		return nil, b.uncertain(ctx, err)
	case !r.Succeeded:
		if kvs := r.Responses[0].GetResponseRange().Kvs; len(kvs) == 0 || kvs[0].CreateRevision != g.token {
			return nil, g.gone()
		}
		return nil, errors.New("etcd: an earlier renewal came between: try again")
	}
	return s, g.settle(s)
}

func notTheGrants(ttl time.Duration) error {
	return fmt.Errorf("etcd: the lease for a TTL of %v was lost: try again", ttl)
}

// try notes that the key may be under s from now on, and tells whether that is new.
// All that were tried before and not answered go on to count.
func (g *grant) try(s *session) (added bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.lost != nil:
		return false, g.lost
	case g.released:
		return false, g.gone()
	case s == g.s || slices.Contains(g.others, s):
		return false, nil
	}
	if g.bind(s) != nil {
		return false, notTheGrants(time.Duration(s.seconds) * time.Second)
	}
	s.join()
	g.others = append(g.others, s)
	return true, nil
}

// untry takes a try back whose request was not executed.
func (g *grant) untry(s *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.others, s); i >= 0 {
		g.others = slices.Delete(g.others, i, i+1)
		g.release(s)
	}
}

// settle notes that the key is under s. Of a grant that was forgotten meanwhile no
// lease is left, nor the key.
func (g *grant) settle(s *session) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		if g.lost != nil {
			return g.lost
		}
		return g.gone()
	}
	for _, other := range g.others {
		if other != s {
			g.release(other)
		}
	}
	former := g.s
	g.s, g.others = s, nil
	if s == former {
		return nil
	}
	g.unbind(former)
	b := g.a.b
	b.mu.Lock()
	if g.a.s != nil {
		g.a.s = s
	} else {
		former = s // the attempt was abandoned, and has left the former
	}
	b.mu.Unlock()
	former.leave()
	return nil
}

func (g *grant) release(s *session) {
	g.unbind(s)
	s.leave()
}

// Release is one round trip.
func (g *grant) Release(ctx context.Context) error {
	b := g.a.b
	return b.do(ctx, func(ctx context.Context) error {
		g.mu.Lock()
		g.released = true // what is seen of the key from here on is no loss
		g.mu.Unlock()
		g.endWatch()
		b.mu.Lock()
		dirty := g.a.dirty
		b.mu.Unlock()
		there, err := b.remove(ctx, g.first, g.key, g.a.req.Owner, dirty)
		if err != nil {
			return err
		}
		g.forget()
		if !there {
			return fmt.Errorf("%w: etcd key %.200q was not there any more", backend.ErrLost, g.key)
		}
		return nil
	})
}

// forget lets go of the leases, once.
func (g *grant) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return
	}
	g.over = true
	g.unbind(g.s)
	for _, s := range g.others {
		g.release(s)
	}
	g.others = nil
	g.a.forget()
}
