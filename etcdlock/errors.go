package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/interlock-go/lock/backend"
)

// failure explains why a request that changes nothing failed. parent is the
// caller's context: that of the request may be bounded further.
func (b *Backend) failure(parent context.Context, err error) error {
	if end := ended(parent); end != nil && !errors.Is(err, end) {
		err = fmt.Errorf("%w: %w", err, end)
	}
	where := "etcd at " + strings.Join(b.client.Endpoints(), ",")
	switch {
	case b.life.Err() != nil:
		return fmt.Errorf("%w: %w", backend.ErrClosed, err)
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Errorf("%s: %w for the keys under %q (what is needed stands in the documentation of package etcdlock, Permissions)", where, err, b.root)
	case errors.Is(err, context.DeadlineExceeded) && ended(parent) == nil:
		return fmt.Errorf("%s: no answer in time", where) // our own bound, not the caller's deadline
	}
	return fmt.Errorf("%s: %w", where, err)
}

// uncertain is failure for a request that changes something: ErrUncertain, unless
// it was certainly not executed.
func (b *Backend) uncertain(parent context.Context, err error) error {
	if refused(err) {
		return b.failure(parent, err)
	}
	return backend.Uncertain(b.failure(parent, err))
}

// refused tells that the server answered, and did not execute the request, or
// that there was no connection to send it on.
func refused(err error) bool {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		switch e.Code() {
		case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange,
			codes.PermissionDenied, codes.Unauthenticated, codes.ResourceExhausted, codes.Unimplemented:
			return true
		}
		return false // among them timeouts of a server that has proposed the request
	}
	return dialing(err)
}

// dialing tells that there was no connection to send the request on.
func dialing(err error) bool {
	s, ok := status.FromError(err)
	return ok && s.Code() == codes.Unavailable && strings.Contains(s.Message(), "while dialing")
}

// passing tells that a server could not serve now, as in an election, or that none
// is there, as in a restart. Both last longer than it takes to find another
// connection.
func passing(err error) bool {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code() == codes.Unavailable
	}
	return dialing(err)
}

// broken tells that there was no connection, that it broke, or that its server is
// cut off from the others: the next request may find another.
func broken(err error) bool {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return errors.Is(err, rpctypes.ErrNoLeader)
	}
	s, ok := status.FromError(err)
	return ok && s.Code() == codes.Unavailable
}

// ended is the error of a context that ended, or whose deadline has passed: gRPC
// may notice it first.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return nil
}

// pause waits, and reports false if ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
