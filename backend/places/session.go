package places

import (
	"context"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
)

// idleTimeout is how long a session without attempts stays, at least; a longer TTL counts instead.
const idleTimeout = time.Minute

// session is a Session with its attempts. Its fields but Session, ready and err are guarded by Backend.mu.
type session struct {
	Session               // set before ready is closed
	ready   chan struct{} // closed when it is open, or could not be opened
	err     error

	attempts map[*attempt]struct{}
	ended    error
	idle     *time.Timer // runs while it has no attempts
}

// join makes an attempt one of the session of its TTL, and returns that when it is open. It is opened for all that
// ask, and for longer than one of them may wait.
func (a *attempt) join(ctx context.Context) (*session, error) {
	b, ttl := a.b, a.b.cfg.SessionTTL(a.req.TTL)
	b.mu.Lock()
	s := b.sessions[ttl]
	if s == nil {
		s = &session{ready: make(chan struct{}), attempts: map[*attempt]struct{}{}}
		s.idle = time.AfterFunc(max(idleTimeout, ttl), func() { b.closeIdle(s, ttl) })
		if !b.life.Go(func() { b.open(s, ttl) }) {
			b.mu.Unlock()
			s.idle.Stop()
			return nil, backend.ErrClosed
		}
		b.sessions[ttl] = s
	}
	if same := b.attempts[a.req.Owner]; same != nil && same != a { // the caller sent the request twice
		a.unanswered = same.unanswered
		a.number, a.numbered, same.numbered = same.number, same.numbered, false
		a.removals = same.removals + 1 // the grant of the other one may be released too
		same.leave()
	}
	a.leave()
	if a.s != s {
		a.s, a.unanswered = s, a.unanswered && a.s == nil
	}
	if !a.numbered {
		a.number, a.numbered = b.number(a.req.Key), true
	}
	a.place, a.state = Place{}, waiting
	b.attempts[a.req.Owner] = a
	s.attempts[a] = struct{}{}
	s.idle.Stop()
	b.mu.Unlock()
	select {
	case <-s.ready:
		return s, s.err
	case <-ctx.Done():
		return s, ctx.Err()
	}
}

// leave ends the use of a session. b.mu is held.
func (a *attempt) leave() {
	if a.s == nil {
		return
	}
	if delete(a.s.attempts, a); len(a.s.attempts) == 0 && a.s.ended == nil {
		a.s.idle.Reset(max(idleTimeout, a.b.cfg.SessionTTL(a.req.TTL)))
	}
}

func (b *Backend) open(s *session, ttl time.Duration) {
	ctx, cancel := context.WithTimeout(b.life.Context(), b.cfg.RequestTimeout)
	defer cancel()
	opened, err := b.svc.Open(ctx, ttl)
	b.mu.Lock()
	s.Session, s.err = opened, err
	if err != nil && b.sessions[ttl] == s {
		delete(b.sessions, ttl)
	}
	late := err == nil && b.life.Context().Err() != nil // Close has not seen it
	b.mu.Unlock()
	close(s.ready)
	switch {
	case late:
		_ = opened.Close(context.WithoutCancel(ctx)) // the client library ends it with the client
	case err == nil:
		b.life.Go(func() { b.awaitEnd(s, ttl) })
	}
}

func (b *Backend) awaitEnd(s *session, ttl time.Duration) {
	select {
	case <-s.Done():
		b.end(s, ttl)
	case <-b.life.Context().Done():
	}
}

// end ends what depends on a session that has ended. Only the first call has an effect.
func (b *Backend) end(s *session, ttl time.Duration) {
	b.mu.Lock()
	if s.ended != nil {
		b.mu.Unlock()
		return
	}
	s.ended = s.Err()
	s.idle.Stop()
	if b.sessions[ttl] == s {
		delete(b.sessions, ttl)
	}
	var holders []*attempt
	for a := range s.attempts {
		if a.state == holding {
			holders = append(holders, a)
		} else {
			a.wakeWith(errRequeue)
		}
	}
	b.mu.Unlock()
	for _, a := range holders {
		a.lose(s.ended, true)
	}
}

// closeIdle closes a session that has no attempts.
func (b *Backend) closeIdle(s *session, ttl time.Duration) {
	b.mu.Lock()
	idle := len(s.attempts) == 0 && s.ended == nil && b.sessions[ttl] == s && s.Session != nil
	if idle {
		delete(b.sessions, ttl)
	}
	b.mu.Unlock()
	if idle {
		b.background(func(ctx context.Context) error { return s.Close(ctx) })
	}
}

// background calls f until it returns nil, with pauses from 50 ms to 1 s, until the Backend is closed.
func (b *Backend) background(f func(ctx context.Context) error) {
	b.life.Go(func() {
		for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
			ctx, cancel := context.WithTimeout(b.life.Context(), b.cfg.RequestTimeout)
			err := f(ctx)
			cancel()
			if err == nil || !call.Sleep(b.life.Context(), pause) {
				return
			}
		}
	})
}
