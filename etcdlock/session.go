package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/interlock-go/lock/backend"
)

const (
	maxTTL    = 9_000_000_000 * time.Second // the servers' bound
	idleLease = time.Minute                 // an unused lease is given up, if its TTL is not longer
	// tombstoneFor is longer than TCP tries to deliver what was written to a
	// connection that is dead.
	tombstoneFor = 15 * time.Minute
)

// session is a lease that all attempts of one TTL share, and its clock: how long
// the servers are certain to keep it, counted from before each request that they
// answered.
type session struct {
	b       *Backend
	seconds int64 // asked for

	ready chan struct{} // closed when id or err is there
	id    clientv3.LeaseID
	err   error

	users int // attempts and grants; under Backend.mu
	idle  time.Time

	turn chan struct{} // holds a value while a keep-alive is under way: one at a time
	dead chan struct{} // closed by die

	mu      sync.Mutex
	sent    time.Time // of the last request that was answered
	granted time.Duration
	clock   *time.Timer
	cause   error // why it died
	gone    bool  // by the servers' word: then its keys are gone
	grants  map[*grant]struct{}
	tombs   []tomb
}

type tomb struct {
	key string
	at  time.Time
}

// seconds is a TTL as etcd knows it.
func seconds(ttl time.Duration) int64 { return int64((ttl + time.Second - 1) / time.Second) }

// session returns the lease of a TTL, made if there is none, for the caller to
// leave when it needs it no more.
func (b *Backend) session(ctx context.Context, ttl time.Duration) (*session, error) {
	n := seconds(ttl)
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, backend.ErrClosed
	}
	s := b.sessions[n]
	if s == nil {
		s = &session{
			b: b, seconds: n, ready: make(chan struct{}), dead: make(chan struct{}),
			turn: make(chan struct{}, 1), grants: map[*grant]struct{}{},
		}
		b.sessions[n] = s
		b.wg.Add(1)
		go s.run()
	}
	s.users++
	b.mu.Unlock()
	select {
	case <-s.ready:
	case <-ctx.Done():
		s.leave()
		return nil, ctx.Err() // nothing was sent for the attempt
	}
	if s.err != nil {
		s.leave()
		return nil, s.err
	}
	return s, nil
}

func (s *session) join() {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.users++
}

func (s *session) leave() {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.users--
	s.idle = time.Now()
}

// made tells whether there is a lease.
func (s *session) made() bool {
	select {
	case <-s.ready:
		return s.err == nil
	default:
		return false
	}
}

// run makes the lease and keeps it alive until it dies, is not used, or the
// backend is closed.
func (s *session) run() {
	defer s.b.wg.Done()
	if !s.make() {
		return
	}
	t := time.NewTimer(s.ttl() / 3)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-s.dead:
			s.bury()
			return
		case <-s.b.life.Done():
			return
		}
		if s.retire() {
			return
		}
		ttl := s.ttl()
		if left := ttl/3 - time.Since(s.sentAt()); left > ttl/60 {
			t.Reset(left) // a renewal has been there first
			continue
		}
		next := ttl / 3
		ctx, cancel := context.WithTimeout(s.b.life, ttl/4)
		if s.refresh(ctx, 0) != nil {
			next = ttl / 12
		}
		s.sweep(ctx)
		cancel()
		t.Reset(next)
	}
}

// make asks for the lease.
func (s *session) make() bool {
	b := s.b
	ctx, cancel := context.WithTimeout(b.life, b.opt.open)
	defer cancel()
	sent := time.Now()
	l, err := b.client.Grant(ctx, s.seconds)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		s.err = fmt.Errorf("make a lease of %d s: %w", s.seconds, b.failure(context.Background(), err))
		delete(b.sessions, s.seconds)
	} else {
		s.id = l.ID
		s.alive(sent, l.TTL)
	}
	close(s.ready)
	return err == nil
}

// alive notes that the servers answered a request sent at sent with a TTL.
func (s *session) alive(sent time.Time, ttl int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent, s.granted = sent, time.Duration(ttl)*time.Second
	left := time.Until(s.sent.Add(s.granted - early(s.granted)))
	if s.clock == nil {
		s.clock = time.AfterFunc(left, s.over)
	} else if s.cause == nil {
		s.clock.Reset(left)
	}
}

// early is how long before the servers' expiry a lease counts as lost.
func early(ttl time.Duration) time.Duration { return min(ttl/20, 250*time.Millisecond) }

// over is called by the clock.
func (s *session) over() {
	s.mu.Lock()
	left := time.Until(s.sent.Add(s.granted - early(s.granted)))
	if left > 0 { // kept alive while this timer fired
		s.clock.Reset(left)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	s.die(fmt.Errorf("%w: etcd lease %016x could not be kept alive for %v", backend.ErrLost, uint64(s.id), s.ttl()), false)
}

func (s *session) stopClock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clock != nil {
		s.clock.Stop()
	}
}

// die ends the session, once, and tells all its grants. gone is set on the
// servers' word.
func (s *session) die(cause error, gone bool) {
	s.mu.Lock()
	if s.cause != nil {
		s.mu.Unlock()
		return
	}
	s.cause, s.gone = cause, gone
	s.clock.Stop()
	grants := s.grants
	s.grants = nil
	s.mu.Unlock()
	s.b.mu.Lock()
	if s.b.sessions[s.seconds] == s {
		delete(s.b.sessions, s.seconds)
	}
	if !gone {
		s.b.buried[s] = struct{}{}
	}
	s.b.mu.Unlock()
	close(s.dead)
	for g := range grants {
		g.lose(cause)
	}
}

// fate returns why the session died, or nil.
func (s *session) fate() (cause error, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause, s.gone
}

func (s *session) sentAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

func (s *session) ttl() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.granted
}

// until is how long the servers are certain to keep the lease, if no more than ttl
// is claimed of it.
func (s *session) until(ttl time.Duration) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent.Add(min(ttl, s.granted))
}

// refresh keeps the lease alive unless that was done less than fresh ago.
func (s *session) refresh(ctx context.Context, fresh time.Duration) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.turn }()
	if cause, _ := s.fate(); cause != nil {
		return cause
	}
	if time.Since(s.sentAt()) < fresh {
		return nil
	}
	sent := time.Now()
	ttl, err := s.b.keepAlive(ctx, s.id, s.ttl()/12)
	if err != nil {
		return err
	}
	if ttl <= 0 {
		s.vanished()
		cause, _ := s.fate()
		return cause
	}
	s.alive(sent, ttl)
	return nil
}

// vanished: the servers do not know the lease.
func (s *session) vanished() {
	s.die(fmt.Errorf("%w: etcd lease %016x has expired or was revoked", backend.ErrLost, uint64(s.id)), true)
}

// keepAlive is one round trip. A server that was cut off from the others may take
// the request and say nothing, so after some patience the client's next one is asked
// too: it has not the time to wait for the first twice.
func (b *Backend) keepAlive(ctx context.Context, id clientv3.LeaseID, patience time.Duration) (int64, error) {
	var asked sync.WaitGroup
	defer asked.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the streams, before that
	type answer struct {
		ttl int64
		err error
	}
	answers := make(chan answer, 2)
	ask := func() {
		ttl, err := b.keepAliveOnce(ctx, id)
		answers <- answer{ttl, err}
	}
	asked.Go(ask)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for open := 1; ; {
		select {
		case a := <-answers:
			if open--; a.err == nil || open == 0 {
				return a.ttl, a.err
			}
		case <-timer.C:
			open++
			asked.Go(ask)
		}
	}
}

// keepAliveOnce asks one server. The client's KeepAliveOnce is not used because it
// repeats itself without a pause for as long as nobody answers.
func (b *Backend) keepAliveOnce(ctx context.Context, id clientv3.LeaseID) (int64, error) {
	stream, err := etcdserverpb.NewLeaseClient(b.client.ActiveConnection()).LeaseKeepAlive(clientv3.WithRequireLeader(ctx), grpc.WaitForReady(true))
	if err != nil {
		return 0, clientv3.ContextError(ctx, err)
	}
	if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
		_, err = stream.Recv() // says why
		return 0, clientv3.ContextError(ctx, err)
	}
	r, err := stream.Recv()
	if err != nil {
		return 0, clientv3.ContextError(ctx, err)
	}
	return r.TTL, nil
}

// bury makes sure that the servers free what was held under a lease that died by
// our own clock, once its time is over: they may have been told to keep it by
// requests whose answers were lost.
func (s *session) bury() {
	b := s.b
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.buried, s)
	}()
	if _, gone := s.fate(); gone {
		return
	}
	ttl := s.ttl()
	if !pause(b.life, time.Until(s.sentAt().Add(ttl))) {
		return // Close revokes it
	}
	ctx, cancel := context.WithTimeout(b.life, ttl)
	defer cancel()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		try, cancelTry := context.WithTimeout(ctx, max(ttl/4, time.Second))
		err := s.revoke(try)
		cancelTry()
		if err == nil || !pause(ctx, wait) {
			return
		}
	}
}

func (s *session) revoke(ctx context.Context) error {
	_, err := s.b.client.Revoke(ctx, s.id)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return err
}

// retire gives the lease up if nobody uses it.
func (s *session) retire() bool {
	b := s.b
	b.mu.Lock()
	unused := s.users == 0 && time.Since(s.idle) > max(idleLease, time.Duration(s.seconds)*time.Second)
	if unused && b.sessions[s.seconds] == s {
		delete(b.sessions, s.seconds)
	}
	b.mu.Unlock()
	if !unused {
		return false
	}
	s.stopClock()
	ctx, cancel := context.WithTimeout(b.life, 5*time.Second)
	defer cancel()
	_ = s.revoke(ctx) // or it ends by itself
	b.mu.Lock()
	delete(b.buried, s) // it may have died meanwhile
	b.mu.Unlock()
	return true
}

// bear notes a tombstone under the lease.
func (s *session) bear(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tombs = append(s.tombs, tomb{key, time.Now()})
}

// sweep removes old tombstones, some at a time.
func (s *session) sweep(ctx context.Context) {
	const most = 64
	var ops []clientv3.Op
	s.mu.Lock()
	for _, t := range s.tombs {
		if time.Since(t.at) < tombstoneFor || len(ops) == most {
			break
		}
		ops = append(ops, clientv3.OpDelete(t.key))
	}
	s.mu.Unlock()
	if len(ops) == 0 {
		return
	}
	if _, err := s.b.client.Txn(ctx).Then(ops...).Commit(); err != nil {
		return // the next time, or with the lease
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tombs = s.tombs[len(ops):]
}
