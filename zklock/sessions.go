package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
)

// session returns the session of a TTL when it is open. The caller must release it.
// All callers share one attempt to open it, which goes on if the context of a caller
// ends.
func (b *Backend) session(ctx context.Context, ttl time.Duration) (*session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s, err := b.retainSession(ttl)
	if err != nil {
		return nil, err
	}
	select {
	case <-s.opened:
		return s, nil
	case <-s.done:
		err = s.endErr()
	case <-ctx.Done():
		err = s.notConnected(ctx)
	}
	s.release()
	return nil, err
}

// retainSession returns the session of a TTL, which it begins to open if there is none.
func (b *Backend) retainSession(ttl time.Duration) (*session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, backend.ErrClosed
	}
	if s := b.sessions[ttl]; s != nil && s.retain() {
		return s, nil
	}
	s, err := b.newSession(ttl)
	if err != nil {
		return nil, err
	}
	b.sessions[ttl] = s
	s.retain()
	if s.startCall() == nil {
		go s.run()
	}
	return s, nil
}

// anySession returns a session for a request that belongs to no attempt. The caller
// must release it.
func (b *Backend) anySession(ctx context.Context) (*session, error) {
	b.mu.Lock()
	for _, s := range b.sessions {
		if s.usable() && s.retain() {
			b.mu.Unlock()
			return s, nil
		}
	}
	b.mu.Unlock()
	return b.session(ctx, min(max(30*time.Second, b.limits.least), b.limits.most))
}

// remove takes a session that has ended out of the map.
func (b *Backend) remove(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sessions[s.ttl] == s {
		delete(b.sessions, s.ttl)
	}
}

const idleTimeout = time.Minute

// retire takes a session out of the map if it was unused for idleTimeout.
func (b *Backend) retire(s *session) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users > 0 || s.pinned || time.Since(s.idleSince) < idleTimeout || b.sessions[s.ttl] != s {
		return false
	}
	delete(b.sessions, s.ttl)
	return true
}

// run opens the session and maintains it until it ends.
func (s *session) run() {
	defer s.calls.Done()
	ctx, cancel := withLimit(s.ending, s.b.opt.openTimeout)
	defer cancel()
	if err := s.authenticate(ctx); err != nil {
		if ctx.Err() != nil {
			err = notOpened{err}
		}
		s.end(err)
		return
	}
	close(s.opened)
	s.maintain()
}

// authenticate waits for the connection and sends the credentials, if there are any.
func (s *session) authenticate(ctx context.Context) error {
	if err := s.awaitConnection(ctx); err != nil || s.b.auth == nil {
		return err
	}
	_, _, err := call(ctx, s, func(c *zk.Conn) (struct{}, error) {
		return struct{}{}, c.AddAuth("digest", s.b.auth)
	})
	if err != nil {
		return fmt.Errorf("zookeeper: authentication: %w", err)
	}
	return nil
}

// createBase creates the node below which all locks are, if it does not exist.
func (s *session) createBase(ctx context.Context) error {
	base := s.b.base
	if found, err := s.exists(ctx, base); err != nil || found {
		return err
	}
	err := s.createPersistent(ctx, base)
	switch {
	case errors.Is(err, zk.ErrNodeExists):
		return nil
	case errors.Is(err, zk.ErrNoNode):
		return fmt.Errorf("%w chroot %.200q: there is no such node; create it, or use another path", backend.ErrInvalid, s.b.opt.root)
	}
	return explain(err, base)
}
