package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/backend/places"
)

const (
	spareTTL    = 30 * time.Second       // of the session for requests that belong to no attempt
	changeGrace = 50 * time.Millisecond  // for a change that is under way to prove that a session lasts
	endMargin   = 250 * time.Millisecond // a session ends before its service can end it, by that or a twentieth
)

var _ places.Session = (*session)(nil)

// Open implements places.Service. The session of the first requests is handed over, or closed: most processes have one.
func (s *service) Open(ctx context.Context, ttl time.Duration) (places.Session, error) {
	s.mu.Lock()
	ss, err := s.spareLocked(ttl)
	delete(s.spare, ttl)
	s.mu.Unlock()
	if err == nil {
		err = ss.awaitOpen(ctx)
	}
	if err != nil {
		if ss != nil {
			ss.end(errSessionClosed)
		}
		return nil, backend.NotExecuted(err)
	}
	s.mu.Lock()
	first := s.current
	if first != nil && (s.spare[first.ttl] != first || first.pinned) {
		first = nil
	} else {
		s.current = ss
	}
	s.mu.Unlock()
	if first != nil {
		first.end(errSessionClosed)
	}
	return ss, nil
}

// spareLocked returns the spare session of a TTL, which it begins to open if there is none. s.mu is held.
func (s *service) spareLocked(ttl time.Duration) (*session, error) {
	if ss := s.spare[ttl]; ss != nil {
		return ss, nil
	}
	ss, err := s.newSession(ttl)
	if err == nil {
		s.spare[ttl] = ss
	}
	return ss, err
}

// pin returns the session of a TTL. A spare one stays open.
func (s *service) pin(ttl time.Duration) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ss := range s.sessions {
		if ss.ttl == ttl && s.spare[ttl] != ss {
			return ss, nil
		}
	}
	ss, err := s.spareLocked(ttl)
	if err == nil {
		ss.pinned = true
	}
	return ss, err
}

// forget forgets a session that has ended, and its attempts.
func (s *service) forget(ss *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, ss)
	if s.current == ss {
		s.current = nil
	}
	if s.spare[ss.ttl] == ss {
		delete(s.spare, ss.ttl)
	}
	for id, e := range s.entries {
		if id.ss == ss {
			s.leaveLocked(e)
		}
	}
}

// run opens the session and maintains it until it ends.
func (ss *session) run() {
	defer ss.calls.Done()
	ctx, cancel := withLimit(ss.ending, ss.s.opt.openTimeout)
	defer cancel()
	if err := ss.authenticate(ctx); err != nil {
		ss.end(err)
		return
	}
	close(ss.opened)
	ss.keepAlive()
}

// awaitOpen returns when the session is ready for use.
func (ss *session) awaitOpen(ctx context.Context) error {
	select {
	case <-ss.opened:
		return ss.endErr()
	case <-ss.done:
		return ss.endErr()
	case <-ctx.Done():
		return ss.notConnected(ctx)
	}
}

// authenticate waits for the connection and sends the credentials, if there are any.
func (ss *session) authenticate(ctx context.Context) error {
	if err := ss.awaitConnection(ctx); err != nil || ss.s.auth == nil {
		return err
	}
	_, _, err := ask(ctx, ss, func(c *zk.Conn) (struct{}, error) {
		return struct{}{}, c.AddAuth("digest", ss.s.auth)
	})
	if err != nil {
		return fmt.Errorf("zookeeper: authentication: %w", err)
	}
	return nil
}

// keepAlive sends a ping every sixteenth of the timeout, so that each change proves that the session was alive a moment
// ago, and a change when there was none for a third. It ends the session when that is not certain any more: its leases are
// not trusted, but a resumption whose reply is lost would keep the locks for another timeout.
func (ss *session) keepAlive() {
	for {
		t := ss.clock.times()
		left := time.Until(t.until()) - min(t.timeout/20, endMargin)
		if !call.Sleep(ss.ending, max(min(t.timeout/16, left), 0)) {
			return
		}
		if t = ss.clock.times(); time.Until(t.until()) <= min(t.timeout/20, endMargin) {
			ss.end(errNoAnswer)
			return
		}
		ss.mu.Lock()
		wire := ss.wire
		ss.mu.Unlock()
		wire.ping(t.timeout / 32)
		if time.Since(t.changedAt) > t.timeout*7/20 && ss.startCall() == nil {
			go func() {
				defer ss.calls.Done()
				_ = ss.confirm(ss.ending) // it is repeated
			}()
		}
	}
}

// confirm makes a change, which a majority confirms, unless one is under way. That moves the session's clock.
func (ss *session) confirm(ctx context.Context) error {
	called := time.Now()
	timeout := ss.clock.times().timeout
	ctx, cancel := withLimit(ctx, timeout/3)
	defer cancel()
	select {
	case ss.confirming <- struct{}{}:
		defer func() { <-ss.confirming }()
	case <-ctx.Done():
		return endOf(ctx)
	case <-ss.done:
		return ss.endErr()
	}
	if ss.clock.times().changedAt.After(called) {
		return nil
	}
	if err := ss.awaitConnection(ctx); err != nil {
		return err
	}
	base := ss.s.base
	_, _, err := ask(ctx, ss, func(c *zk.Conn) ([]zk.MultiResponse, error) {
		return c.Multi(&zk.CheckVersionRequest{Path: base, Version: -1}) // changes nothing
	})
	return explain(err, base)
}

// Trust implements places.Session.
func (ss *session) Trust() (sent time.Time, ttl time.Duration) { return ss.clock.trust(ss.ttl) }

// Renew implements places.Session. The check of a place, which is sent at the same time, is such a change too. The change
// proves that an earlier ping has arrived.
func (ss *session) Renew(ctx context.Context, age time.Duration) error {
	within, cancel := withLimit(ctx, changeGrace)
	defer cancel()
	if ss.clock.awaitChange(within, time.Now().Add(-age)) == nil {
		return ss.Err()
	}
	if err := ss.confirm(ctx); err != nil {
		return err
	}
	return ss.Err()
}

// Done implements places.Session.
func (ss *session) Done() <-chan struct{} { return ss.done }

// Err implements places.Session.
func (ss *session) Err() error {
	err := ss.endErr()
	if err != nil && !errors.Is(err, backend.ErrLost) {
		err = fmt.Errorf("%w: %w", backend.ErrLost, err)
	}
	return err
}

// Close implements places.Session.
func (ss *session) Close(ctx context.Context) error {
	ss.end(errSessionClosed)
	select {
	case <-ss.closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: zookeeper: closing a session, which lasts up to %v: %w", backend.ErrUncertain, ss.ttl, ctx.Err())
	}
}

// createBase creates the node below which all locks are, if it does not exist.
func (ss *session) createBase(ctx context.Context) error {
	base := ss.s.base
	if n, err := ss.get(ctx, base); err != nil || n.stat != nil {
		return err
	}
	err := ss.createPersistent(ctx, base)
	switch {
	case errors.Is(err, zk.ErrNodeExists):
		return nil
	case errors.Is(err, zk.ErrNoNode):
		return fmt.Errorf("%w chroot %.200q: there is no such node; create it, or use another path", backend.ErrInvalid, ss.s.opt.root)
	}
	return explain(err, base)
}
