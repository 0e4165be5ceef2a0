package zklock

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"
)

// confirm makes a majority confirm the session: it returns after a change that was
// sent after the call was answered. That moves the session's clock. All watch events of
// what happened before that change have been delivered when confirm returns.
//
// One request is under way at a time, with a pause before the next, and serves all
// callers that called before it was sent: hundreds of leases that renew at different
// times cost no more than that.
func (s *session) confirm(ctx context.Context) error {
	called := time.Now()
	select {
	case s.confirming <- struct{}{}:
		defer func() { <-s.confirming }()
	case <-ctx.Done():
		return endOf(ctx)
	case <-s.done:
		return s.endErr()
	}
	if s.clock.times().changedAt.After(called) {
		return nil
	}
	timeout := s.clock.times().timeout
	sleep(ctx, time.Until(s.confirmSent.Add(min(timeout/50, 50*time.Millisecond))))
	s.confirmSent = time.Now()
	ctx, cancel := withLimit(ctx, timeout/3)
	defer cancel()
	if err := s.awaitConnection(ctx); err != nil {
		return err
	}
	base := s.b.base
	_, _, err := call(ctx, s, func(c *zk.Conn) ([]zk.MultiResponse, error) {
		return c.Multi(&zk.CheckVersionRequest{Path: base, Version: -1}) // changes nothing
	})
	return explain(err, base)
}

// maintain confirms the session when its last change was 0.3 timeouts ago, while the
// session is in use: a waiter must know at once how long its grant lasts. maintain
// ends a session that nothing has used for a minute. It returns when the session ends.
func (s *session) maintain() {
	wait := s.confirmInterval()
	for {
		if sleep(s.ending, max(wait, 5*time.Millisecond)); s.ending.Err() != nil {
			return
		}
		every := s.confirmInterval()
		wait = time.Until(s.clock.times().changedAt.Add(every))
		switch {
		case s.b.retire(s):
			s.end(errIdleSession)
		case !s.inUse():
			wait = every
		case wait <= 0:
			ctx, cancel := withLimit(s.ending, every)
			wait = every
			if err := s.confirm(ctx); err != nil {
				wait = every / 4
			}
			cancel()
		}
	}
}

func (s *session) confirmInterval() time.Duration { return s.clock.times().timeout * 3 / 10 }
