package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

const (
	maxTTL           = backend.MaxTTL // the servers accept up to 9,000,000,000 s
	leaseIdleTimeout = time.Minute    // a lease unused for that long and for its TTL is given up
)

// A session is the lease that all attempts with one TTL share. Its clock counts how long
// the servers certainly keep the lease, from before each request that they answered.
//
// A session ends when the servers do not know its lease (gone), when its clock runs out,
// or when it was idle. Its grants are lost then. If the lease is not gone the session
// revokes it: the servers may have extended it by requests whose replies were lost.
type session struct {
	b       *Backend
	seconds int64 // the TTL asked for

	ctx    context.Context // ends with the session and with Close
	cancel context.CancelFunc

	ready chan struct{}    // closed when id or err is set
	id    clientv3.LeaseID // zero before; written under Backend.mu
	err   error

	users    int // attempts and calls that use the lease; guarded by Backend.mu
	lastUsed time.Time

	renewing chan struct{} // capacity 1: keep-alives do not overlap

	mu      sync.Mutex // guards the fields below
	sent    time.Time  // of the last request that was answered
	granted time.Duration
	clock   *time.Timer
	cause   error // why the session ended
	gone    bool  // the servers have deleted the lease and its keys
	grants  map[*grant]struct{}
}

// wholeSeconds returns a TTL as etcd counts it.
func wholeSeconds(ttl time.Duration) int64 { return int64((ttl + time.Second - 1) / time.Second) }

// session returns the session of a TTL with its lease, and begins one if there is none.
// The caller calls leave when it has finished. An error is marked by NotExecuted.
func (b *Backend) session(ctx context.Context, ttl time.Duration) (*session, error) {
	n := wholeSeconds(ttl)
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, backend.ErrClosed
	}
	s := b.sessions[n]
	if s == nil {
		s = &session{b: b, seconds: n, ready: make(chan struct{}), renewing: make(chan struct{}, 1), grants: map[*grant]struct{}{}}
		s.ctx, s.cancel = context.WithCancel(b.ctx)
		b.sessions[n] = s
		b.wg.Add(1)
		go s.run()
	}
	s.users++
	b.mu.Unlock()
	var err error
	select {
	case <-s.ready:
		err = s.err
	case <-ctx.Done():
		err = contextError(ctx)
	}
	if err != nil {
		s.leave()
		return nil, backend.NotExecuted(err)
	}
	return s, nil
}

func (s *session) leave() {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.leaveLocked()
}

func (s *session) leaveLocked() {
	s.users--
	s.lastUsed = time.Now()
}

// run obtains the lease and sends keep-alives until the session has ended or was idle
// for too long, or until Close.
func (s *session) run() {
	defer s.b.wg.Done()
	defer s.cancel()
	if !s.obtainLease() {
		return
	}
	s.b.wg.Go(func() { _, _ = s.b.leaseStream(s.ctx) }) // in time for the first keep-alive
	for next := s.ttl() / 3; pause(s.ctx, next) && !s.endIfIdle(); {
		next = s.renewIfDue()
	}
	s.revokeExpired()
}

func (s *session) obtainLease() bool {
	b := s.b
	ctx, cancel := context.WithTimeout(s.ctx, b.opt.openTimeout)
	defer cancel()
	sent := time.Now()
	l, err := b.client.Grant(ctx, s.seconds)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		s.err = fmt.Errorf("grant a lease of %d s: %w", s.seconds, b.readError(context.Background(), err))
		delete(b.sessions, s.seconds)
	} else {
		s.id = l.ID
		s.extend(sent, l.TTL)
	}
	close(s.ready)
	return err == nil
}

// extend sets the clock after the servers answered a request of time sent with a TTL.
func (s *session) extend(sent time.Time, ttl int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent, s.granted = sent, time.Duration(ttl)*time.Second
	if s.clock == nil {
		s.clock = time.AfterFunc(s.leftLocked(), s.onClock)
	} else if s.cause == nil {
		s.clock.Reset(s.leftLocked())
	}
}

// leftLocked returns the time until the session ends by its clock: up to 250 ms before
// the servers can expire the lease.
func (s *session) leftLocked() time.Duration {
	return time.Until(s.sent.Add(s.granted - min(s.granted/20, 250*time.Millisecond)))
}

func (s *session) onClock() {
	s.mu.Lock()
	left := s.leftLocked()
	if left > 0 { // extended while the timer fired
		s.clock.Reset(left)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	s.end(fmt.Errorf("%w: etcd lease %016x could not be kept alive for %v", backend.ErrLost, uint64(s.id), s.ttl()), false)
}

// endAsGone ends the session because the servers do not know its lease.
func (s *session) endAsGone() {
	s.end(fmt.Errorf("%w: etcd lease %016x has expired or was revoked", backend.ErrLost, uint64(s.id)), true)
}

// end ends the session and reports the loss to its grants. Only the first call has an
// effect.
func (s *session) end(cause error, gone bool) {
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
		s.b.expired[s] = struct{}{}
	}
	s.b.mu.Unlock()
	s.cancel()
	for g := range grants {
		g.lose(cause, g.a.req.OnLost)
	}
}

// endIfIdle ends the session if it was not used for too long, and returns whether it
// did.
func (s *session) endIfIdle() bool {
	b := s.b
	b.mu.Lock()
	idle := s.users == 0 && time.Since(s.lastUsed) > max(leaseIdleTimeout, time.Duration(s.seconds)*time.Second)
	if idle && b.sessions[s.seconds] == s {
		delete(b.sessions, s.seconds) // it gets no user any more
	}
	b.mu.Unlock()
	if idle {
		s.end(errors.New("etcd: the lease was not used"), false)
	}
	return idle
}

// ended returns why the session has ended, or nil, and whether its keys are deleted.
func (s *session) ended() (cause error, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause, s.gone
}

// ttl returns the TTL that the servers granted.
func (s *session) ttl() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.granted
}

// lastAnswer returns when the last request for the lease was sent that the servers answered.
func (s *session) lastAnswer() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

// until returns the time up to which the servers certainly keep the lease, and at most
// ttl after the last request that they answered.
func (s *session) until(ttl time.Duration) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent.Add(min(ttl, s.granted))
}

// revokeExpired revokes the lease of a session that has ended, unless it is gone. It
// waits until the lease is over: until then its keys exclude others.
func (s *session) revokeExpired() {
	b := s.b
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.expired, s)
	}()
	if _, gone := s.ended(); gone {
		return
	}
	ttl := s.ttl()
	if !pause(b.ctx, time.Until(s.until(ttl))) {
		return // Close revokes the lease
	}
	ctx, cancel := context.WithTimeout(b.ctx, ttl)
	defer cancel()
	retry(ctx, max(ttl/4, time.Second), s.revoke)
}

func (s *session) revoke(ctx context.Context) error {
	s.mu.Lock()
	s.clock.Stop()
	s.mu.Unlock()
	_, err := s.b.client.Revoke(ctx, s.id)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return err
}
