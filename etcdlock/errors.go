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

// readError adds the servers and the cause to the error of a request that changes
// nothing. ctx is the context of the caller.
func (b *Backend) readError(ctx context.Context, err error) error {
	end := contextError(ctx)
	if end != nil && !errors.Is(err, end) {
		err = fmt.Errorf("%w: %w", err, end)
	}
	servers := "etcd at " + strings.Join(b.client.Endpoints(), ",")
	switch {
	case b.ctx.Err() != nil:
		return fmt.Errorf("%w: %w", backend.ErrClosed, err)
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Errorf("%s: %w for the keys under %q (see Permissions in the documentation of package etcdlock)", servers, err, b.root)
	case errors.Is(err, context.DeadlineExceeded) && end == nil:
		return fmt.Errorf("%s: no answer in time", servers) // the limit of the driver, not the deadline of the caller
	}
	return fmt.Errorf("%s: %w", servers, err)
}

// writeError is readError for a request that changes something. The error is marked as
// NotExecuted if that is certain, and else as Uncertain.
func (b *Backend) writeError(ctx context.Context, err error) error {
	if notExecuted(err) {
		return backend.NotExecuted(b.readError(ctx, err))
	}
	return backend.Uncertain(b.readError(ctx, err))
}

// notExecuted reports whether the server refused the request, or whether there was no
// connection to send it on.
func notExecuted(err error) bool {
	var e rpctypes.EtcdError
	if !errors.As(err, &e) {
		return failedToDial(err)
	}
	switch e.Code() {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange,
		codes.PermissionDenied, codes.Unauthenticated, codes.ResourceExhausted, codes.Unimplemented:
		return true
	}
	return false // such as a timeout of a server that has proposed the request
}

func failedToDial(err error) bool {
	return disconnected(err) && strings.Contains(err.Error(), "while dialing")
}

// disconnected reports whether there was no connection or whether it broke: the next
// request may use another server.
func disconnected(err error) bool { return status.Code(err) == codes.Unavailable }

// unavailable reports whether a server could not serve, as in an election, or did not
// exist, as in a restart. Both take longer than a new connection.
func unavailable(err error) bool {
	var e rpctypes.EtcdError
	return failedToDial(err) || errors.As(err, &e) && e.Code() == codes.Unavailable
}

// contextError returns the error of a context that has ended or whose deadline has
// passed: gRPC may notice the deadline first.
func contextError(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return nil
}

// pause waits for d. It returns false if ctx ended before.
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
