package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/backend/places"
)

// session is a lease. Its clock counts how long the servers certainly keep the lease, from before each request that they
// answered. It ends when the servers do not know the lease, or when its clock runs out. Then it revokes the lease: the
// servers may have extended it by requests whose replies were lost.
//
// The marker is a key under the lease, which the process watches: it ends with the lease, and Break writes into it whose
// grants were broken. Its revision is the epoch of the session. A request that puts a place requires the epoch in which
// it was sent. Putting the marker begins another one, so the servers refuse all earlier requests whose outcome is not
// known.
type session struct {
	s      *service
	id     clientv3.LeaseID
	marker string
	ttl    time.Duration // that the servers granted
	epoch  atomic.Int64  // the greatest that is known
	kick   chan struct{} // capacity 1: a keep-alive is to be sent now
	done   chan struct{}

	mu    sync.Mutex // guards the fields below
	sent  time.Time  // of the last request that was answered
	clock *time.Timer
	news  chan struct{} // closed at the next answer
	cause error         // why it has ended
	lost  bool          // the servers have deleted the lease and its keys
}

// wholeSeconds returns a TTL as etcd counts it.
func wholeSeconds(ttl time.Duration) int64 { return int64((ttl + time.Second - 1) / time.Second) }

func (s *service) marker(id clientv3.LeaseID) string {
	return s.root + fmt.Sprintf("%s/%016x", markers, uint64(id))
}

// Open implements places.Service.
func (s *service) Open(ctx context.Context, ttl time.Duration) (places.Session, error) {
	ctx = clientv3.WithRequireLeader(ctx)
	sent := time.Now()
	l, err := s.client.Grant(ctx, wholeSeconds(ttl))
	if err != nil {
		return nil, backend.NotExecuted(fmt.Errorf("grant a lease of %d s: %w", wholeSeconds(ttl), s.readError(ctx, err)))
	}
	ss := &session{
		s: s, id: l.ID, marker: s.marker(l.ID), ttl: time.Duration(l.TTL) * time.Second, sent: sent,
		kick: make(chan struct{}, 1), done: make(chan struct{}), news: make(chan struct{}),
	}
	r, err := s.client.Do(ctx, ss.bump())
	if err != nil {
		s.life.Go(func() { _ = ss.revoke(s.life.Context()) })
		return nil, backend.NotExecuted(fmt.Errorf("put the key of a lease: %w", s.readError(ctx, err)))
	}
	ss.epoch.Store(r.Put().Header.Revision)
	s.mu.Lock()
	s.sessions[ss.id] = ss
	s.mu.Unlock()
	ss.mu.Lock()
	ss.clock = time.AfterFunc(ss.left(), ss.onClock)
	ss.mu.Unlock()
	s.life.Go(ss.watch)
	s.life.Go(ss.keepAlive)
	return ss, nil
}

// bump begins another epoch.
func (ss *session) bump() clientv3.Op {
	return clientv3.OpPut(ss.marker, "", clientv3.WithLease(ss.id))
}

// advance takes notice of an epoch.
func (ss *session) advance(epoch int64) {
	for {
		known := ss.epoch.Load()
		if known >= epoch || ss.epoch.CompareAndSwap(known, epoch) {
			return
		}
	}
}

// Trust implements places.Session.
func (ss *session) Trust() (time.Time, time.Duration) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.sent, ss.ttl
}

// Renew implements places.Session.
func (ss *session) Renew(ctx context.Context, age time.Duration) error {
	for least := time.Now().Add(-age); ; {
		ss.mu.Lock()
		sent, news, cause := ss.sent, ss.news, ss.cause
		ss.mu.Unlock()
		if cause != nil || !sent.Before(least) {
			return cause
		}
		ss.sendNow()
		select {
		case <-news:
		case <-ss.done:
		case <-ctx.Done():
			return fmt.Errorf("keep the lease alive: %w", ss.s.readError(ctx, ctx.Err()))
		}
	}
}

// freshen sends a keep-alive, unless that was done a moment ago: trust in a grant is to last nearly the TTL.
func (ss *session) freshen() {
	if sent, ttl := ss.Trust(); time.Since(sent) > ttl/20 {
		ss.sendNow()
	}
}

func (ss *session) sendNow() {
	select {
	case ss.kick <- struct{}{}:
	default:
	}
}

// answered takes the answer to a keep-alive of time sent. A proxy that sees the lease end may answer with what is left
// of it.
func (ss *session) answered(sent time.Time, ttl int64) {
	if ttl <= 0 {
		ss.end(ss.gone(), true)
		return
	}
	if short := ss.ttl - time.Duration(ttl)*time.Second; short > 0 {
		sent = sent.Add(-short)
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if sent.After(ss.sent) {
		ss.sent = sent
	}
	if ss.cause == nil {
		ss.clock.Reset(ss.left())
	}
	close(ss.news)
	ss.news = make(chan struct{})
}

// left returns the time until the session ends by its clock: up to 250 ms before the servers can expire the lease.
func (ss *session) left() time.Duration {
	return time.Until(ss.sent.Add(ss.ttl - min(ss.ttl/20, 250*time.Millisecond)))
}

func (ss *session) onClock() {
	ss.mu.Lock()
	left := ss.left()
	if left > 0 && ss.cause == nil { // extended while the timer fired
		ss.clock.Reset(left)
		ss.mu.Unlock()
		return
	}
	ss.mu.Unlock()
	ss.end(fmt.Errorf("%w: etcd lease %016x could not be kept alive for %v", backend.ErrLost, uint64(ss.id), ss.ttl), false)
}

func (ss *session) gone() error {
	return fmt.Errorf("%w: etcd lease %016x has expired or was revoked", backend.ErrLost, uint64(ss.id))
}

// end ends the session. Only the first call has an effect. lost is whether the servers have deleted the lease.
func (ss *session) end(cause error, lost bool) {
	ss.mu.Lock()
	first := ss.cause == nil
	if first {
		ss.cause = cause
		ss.clock.Stop()
		close(ss.done)
	}
	ss.lost = ss.lost || lost
	ss.mu.Unlock()
	if lost {
		ss.forget()
	} else if first {
		ss.s.life.Go(ss.revokeLater)
	}
}

func (ss *session) forget() {
	ss.s.mu.Lock()
	defer ss.s.mu.Unlock()
	delete(ss.s.sessions, ss.id)
}

func (ss *session) isGone() bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.lost
}

// revokeLater revokes the lease when it is over: until then its keys exclude others.
func (ss *session) revokeLater() {
	life := ss.s.life.Context()
	sent, ttl := ss.Trust()
	if !call.Sleep(life, time.Until(sent.Add(ttl))) {
		return // Close revokes it
	}
	ctx, cancel := context.WithTimeout(life, ttl)
	defer cancel()
	retry(ctx, max(ttl/4, time.Second), ss.revoke)
}

func (ss *session) revoke(ctx context.Context) error {
	_, err := ss.s.client.Revoke(ctx, ss.id)
	if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return err
	}
	ss.forget()
	return nil
}

// Done implements places.Session.
func (ss *session) Done() <-chan struct{} { return ss.done }

// Err implements places.Session.
func (ss *session) Err() error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.cause
}

// Close implements places.Session.
func (ss *session) Close(ctx context.Context) error {
	ss.end(fmt.Errorf("%w: the lease was given up", backend.ErrLost), true)
	if err := ss.revoke(ctx); err != nil {
		return fmt.Errorf("%w: a lease was not revoked and lasts up to %v: %w", backend.ErrUncertain, ss.ttl, err)
	}
	return nil
}

// watch watches the marker, from the revision after which it has seen all events.
func (ss *session) watch() {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ss.s.life.Context()))
	defer cancel()
	revision := ss.epoch.Load() + 1
	for ss.Err() == nil && ctx.Err() == nil {
		for r := range ss.s.client.Watch(ctx, ss.marker, clientv3.WithRev(revision)) {
			revision = max(revision, r.CompactRevision)
			for _, e := range r.Events {
				revision = e.Kv.ModRevision + 1
				if e.Type == clientv3.EventTypeDelete {
					ss.end(ss.gone(), false)
					return
				}
				ss.advance(e.Kv.ModRevision)
				for owner := range strings.SplitSeq(string(e.Kv.Value), ",") {
					ss.s.events.Broken(owner)
				}
			}
		}
		call.Sleep(ctx, minPause)
	}
}
