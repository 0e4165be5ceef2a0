package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/retry"
)

// The pause between two requests of a poll doubles from minPollPause to maxPollPause.
const (
	minPollPause = 5 * time.Millisecond
	maxPollPause = 250 * time.Millisecond
)

// poll waits on a backend without a queue: it sends a request after each pause. Pauses are
// jittered, so that waiters do not move in step, and are not longer than what is left of
// the holder's lease. After the first reply it survives failures of the service for up to
// the TTL.
func (a *attempt) poll(ctx context.Context) (*Lease, error) {
	lastReply := time.Now()
	for next := minPollPause; ; next = min(2*next, maxPollPause) {
		l, err := a.try(ctx)
		if err == nil {
			return l, nil
		}
		pause := next/2 + rand.N(next/2)
		var locked *backend.LockedError
		switch {
		case ctx.Err() != nil:
			return nil, retry.WithContext(ctx, err)
		case errors.As(err, &locked):
			lastReply = time.Now()
			a.reportWaiting(locked)
			if left := locked.Holder.Left; left > 0 && left < pause {
				pause = left + time.Millisecond + rand.N(minPollPause)
			}
		case errors.Is(err, backend.ErrLocked):
			lastReply = time.Now()
			a.reportWaiting(&backend.LockedError{})
		case !a.isWaiting() || time.Since(lastReply) > a.m.params.TTL || !retry.Transient(err):
			return nil, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			if errors.Is(err, backend.ErrLocked) {
				return nil, a.endedBy(ctx)
			}
			return nil, fmt.Errorf("%w; %w", a.endedBy(ctx), err)
		}
	}
}

func (a *attempt) isWaiting() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.locked != nil
}
