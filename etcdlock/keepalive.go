package etcdlock

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// renewIfDue sends a keep-alive if none was answered in the last third of the TTL, and
// returns the time until the next call.
func (s *session) renewIfDue() time.Duration {
	ttl := s.ttl()
	if left := time.Until(s.until(ttl / 3)); left > ttl/60 {
		return left // the renewal of a grant has sent one
	}
	ctx, cancel := context.WithTimeout(s.ctx, ttl/4)
	defer cancel()
	if s.refresh(ctx, 0) != nil {
		return ttl / 12
	}
	return ttl / 3
}

// refresh sends a keep-alive, unless one of less than maxAge ago was answered. It
// returns the cause if the session has ended.
func (s *session) refresh(ctx context.Context, maxAge time.Duration) error {
	select {
	case s.renewing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.renewing }()
	if cause, _ := s.ended(); cause != nil {
		return cause
	}
	if time.Until(s.until(maxAge)) > 0 {
		return nil
	}
	sent := time.Now()
	secondAfter := s.ttl() / 12
	if s.b.client.Username != "" {
		secondAfter *= 2 // a second stream costs an authentication
	}
	ttl, err := s.b.keepAlive(ctx, s.id, secondAfter)
	if err != nil {
		s.b.conns.unanswered(ctx, sent)
		return err
	}
	if ttl <= 0 {
		s.endAsGone()
		cause, _ := s.ended()
		return cause
	}
	s.extend(sent, ttl)
	return nil
}

// keepAlive makes one round trip and returns the TTL, zero if the servers do not know the
// lease. It uses the stream of the backend. If there is no answer after secondAfter, or the
// stream fails, it also asks the next server of the client by a new stream: a server that is
// cut off may accept requests and not answer.
func (b *Backend) keepAlive(ctx context.Context, id clientv3.LeaseID, secondAfter time.Duration) (int64, error) {
	var requests sync.WaitGroup
	defer requests.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		ttl int64
		err error
	}
	answers := make(chan answer, 2)
	ask := func(open func(context.Context) (*leaseStream, error)) {
		requests.Go(func() {
			var a answer
			s, err := open(ctx)
			if a.err = err; err == nil {
				a.ttl, a.err = s.keepAlive(ctx, id)
				b.keepStream(s, a.err == nil)
			}
			answers <- a
		})
	}
	ask(b.leaseStream)
	timer := time.NewTimer(secondAfter)
	defer timer.Stop()
	for asked, open := 1, 1; ; {
		select {
		case a := <-answers:
			if open--; a.err == nil || open == 0 && (asked == 2 || ctx.Err() != nil) {
				return a.ttl, clientv3.ContextError(ctx, a.err)
			}
		case <-timer.C:
		}
		if asked == 1 {
			asked, open = 2, open+1
			ask(b.anotherStream)
		}
	}
}

// A leaseStream is a stream of keep-alives of any leases. The servers authenticate the user
// of each new stream, which costs them a hash of the password and a proposal, so a backend
// keeps one stream until it fails.
type leaseStream struct {
	stream etcdserverpb.Lease_LeaseKeepAliveClient
	cancel context.CancelFunc
	ended  chan struct{} // closed when err is set

	mu      sync.Mutex // guards the fields below, and stream.Send
	waiting map[int64][]chan int64
	err     error
}

// leaseStream returns the stream of the backend, and opens it if there is none.
func (b *Backend) leaseStream(ctx context.Context) (*leaseStream, error) {
	return b.openStream(ctx, b.opening, b.currentStream)
}

// currentStream returns the stream of the backend, nil if there is none that works.
func (b *Backend) currentStream() *leaseStream {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stream == nil {
		return nil
	}
	select {
	case <-b.stream.ended:
		return nil
	default:
		return b.stream
	}
}

// anotherStream opens a stream beside that of the backend.
func (b *Backend) anotherStream(ctx context.Context) (*leaseStream, error) {
	return b.openStream(ctx, b.openingOther, func() *leaseStream { return nil })
}

// openStream returns the result of existing, or else a new stream. A slow opening goes on
// after the end of ctx, for the next request: to authenticate again would make a busy
// server slower. opening has capacity 1.
func (b *Backend) openStream(ctx context.Context, opening chan struct{}, existing func() *leaseStream) (*leaseStream, error) {
	select {
	case opening <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s := existing(); s != nil {
		<-opening
		return s, nil
	}
	type result struct {
		s   *leaseStream
		err error
	}
	opened := make(chan result)
	b.wg.Add(1) // Close still waits for the caller
	go func() {
		defer b.wg.Done()
		s, err := b.newLeaseStream()
		if err == nil && b.currentStream() == nil {
			b.keepStream(s, true)
		}
		select {
		case opened <- result{s, err}:
		case <-ctx.Done():
			if err == nil {
				b.keepStream(s, true)
			}
		}
		<-opening
		if err == nil {
			s.receive()
		}
	}()
	select {
	case r := <-opened:
		return r.s, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// newLeaseStream opens a stream, which ends with the backend.
func (b *Backend) newLeaseStream() (*leaseStream, error) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(b.ctx))
	slow := time.AfterFunc(b.opt.openTimeout, cancel)
	stream, err := etcdserverpb.NewLeaseClient(b.client.ActiveConnection()).LeaseKeepAlive(ctx, grpc.WaitForReady(true))
	if !slow.Stop() && err == nil {
		err = errTooSlow
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return &leaseStream{stream: stream, cancel: cancel, ended: make(chan struct{}), waiting: map[int64][]chan int64{}}, nil
}

// keepStream makes s the stream of the backend if it has answered. Else it ends s, unless
// it is the stream of the backend.
func (b *Backend) keepStream(s *leaseStream, answered bool) {
	b.mu.Lock()
	other := s
	if answered {
		other, b.stream = b.stream, s
	}
	current := b.stream
	b.mu.Unlock()
	if other != nil && other != current {
		other.cancel()
	}
}

// keepAlive makes one round trip.
func (s *leaseStream) keepAlive(ctx context.Context, id clientv3.LeaseID) (int64, error) {
	answer := make(chan int64, 1)
	s.mu.Lock()
	s.waiting[int64(id)] = append(s.waiting[int64(id)], answer)
	err := s.stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(id)})
	s.mu.Unlock()
	if err != nil {
		<-s.ended // receive returns the reason
		return 0, s.failure()
	}
	select {
	case ttl := <-answer:
		return ttl, nil
	case <-s.ended:
		return 0, s.failure()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// receive passes the answers on, until the stream fails. The answers of a lease are in the
// order of its requests: a late answer must not be taken for that of a later request.
func (s *leaseStream) receive() {
	defer s.cancel()
	for {
		r, err := s.stream.Recv()
		s.mu.Lock()
		if err != nil {
			s.err = err
			s.mu.Unlock()
			close(s.ended)
			return
		}
		if w := s.waiting[r.ID]; len(w) > 1 {
			s.waiting[r.ID] = w[1:]
			w[0] <- r.TTL
		} else if len(w) == 1 {
			delete(s.waiting, r.ID)
			w[0] <- r.TTL
		}
		s.mu.Unlock()
	}
}

func (s *leaseStream) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
