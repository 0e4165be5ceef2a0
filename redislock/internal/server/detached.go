package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// Detached calls f and returns its result. If ctx ends first, Detached returns at once
// and f continues as a task. Its error is ErrUncertain if the request had been written to
// a connection; otherwise the request is withdrawn. The request occupies a place in places,
// if that is not nil, for as long as it occupies a connection.
func (s *Server) Detached(ctx context.Context, places chan struct{}, f func(*protocol.Sending) (any, error)) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, backend.NotExecuted(err)
	}
	if places != nil {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return nil, backend.NotExecuted(ctx.Err())
		case <-s.Life.Done():
			return nil, backend.ErrClosed
		}
	}
	leave := func() {
		if places != nil {
			<-places
		}
	}
	if !s.Enter() {
		leave()
		return nil, backend.ErrClosed
	}
	sending := new(protocol.Sending)
	if ctx.Done() == nil {
		defer s.Done()
		defer leave()
		return f(sending)
	}
	type result struct {
		v   any
		err error
	}
	ch := make(chan result, 1)
	s.dispatch(func() {
		v, err := f(sending)
		leave()
		ch <- result{v, err}
	})
	select {
	case r := <-ch:
		if end := ended(ctx); r.err != nil && end != nil {
			<-ctx.Done() // its timer may be late, and the caller compares the error with it
			if !errors.Is(r.err, end) {
				r.err = fmt.Errorf("%w: %w", r.err, end)
			}
		}
		return r.v, r.err
	case <-ctx.Done():
		if sending.Withdraw() {
			return nil, backend.NotExecuted(ctx.Err())
		}
		return nil, backend.Uncertain(ctx.Err())
	}
}

// ended returns the error of ctx if it has ended or its deadline has passed. The
// deadline of a socket is set from the context and may fire first.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return nil
}
