package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
)

// Close takes at most closeTimeout, beside the time to close the backend. It takes at
// least minCloseTime to release grants, even if its context has ended before.
const (
	closeTimeout  = 10 * time.Second
	minCloseTime  = 2 * time.Second
	closeParallel = 32 // releases in flight
)

// Close ends all leases with ErrClosed, releases their grants, waits for tasks and closes
// the backend. It must be called once.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	e.closed = true
	held := slices.Collect(maps.Keys(e.held))
	e.mu.Unlock()
	ctx, cancel := closeContext(ctx)
	defer cancel()
	e.tasks.Stop(backend.ErrClosed)
	err := e.releaseAll(ctx, held)
	e.tasks.Done()
	select {
	case <-e.tasks.Idle():
	case <-ctx.Done():
		if err == nil {
			err = fmt.Errorf("%w: cleaning up was still under way", backend.ErrUncertain)
		}
	}
	e.tasks.Kill()
	// Tasks that still run end now, and then the backend is closed. Both get time of their own.
	closing := 3 * time.Second
	if ctx.Err() != nil {
		closing = time.Second
	}
	select {
	case <-e.tasks.Idle():
	case <-time.After(time.Second): // a driver that ignores its context
	}
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()
	if closeErr := e.cfg.Backend.Close(ctx); err == nil {
		err = closeErr
	}
	return err
}

// closeContext ends with ctx, but not before minCloseTime has passed: closing under
// a context that has ended, as at the end of a program, must not leave locks held.
func closeContext(ctx context.Context) (context.Context, context.CancelFunc) {
	start := time.Now()
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	stop := context.AfterFunc(ctx, func() {
		call.Sleep(own, minCloseTime-time.Since(start))
		cancel()
	})
	return own, func() { stop(); cancel() }
}

// releaseAll ends all held grants first and then releases them.
func (e *Engine) releaseAll(ctx context.Context, held []*heldGrant) error {
	ended := held[:0]
	for _, h := range held {
		if h.end(e.cfg.EndErr(h.req.Key, backend.ErrClosed)) {
			ended = append(ended, h)
		}
	}
	next := make(chan *heldGrant, len(ended))
	for _, h := range ended {
		next <- h
	}
	close(next)
	results := make(chan error, len(ended))
	for range min(closeParallel, len(ended)) {
		go func() {
			for h := range next {
				err := h.releaseOnClose(ctx)
				h.reportEnd(h.values(), Released, err)
				results <- err
			}
		}()
	}
	var first error
	failed := 0
	for range ended {
		select {
		case err := <-results:
			if err == nil || errors.Is(err, backend.ErrLost) {
				continue
			}
			if failed++; first == nil {
				first = err
			}
		case <-ctx.Done(): // a driver that ignores its context
			return fmt.Errorf("%w: not all locks were freed in time", backend.ErrUncertain)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d locks were not freed, the first: %w", failed, first)
	}
	return nil
}
