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
	"github.com/interlock-go/lock/backend/call"
)

// readError adds the servers and the cause to the error of a request that changes
// nothing. ctx is the context of the caller.
func (s *service) readError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, backend.ErrClosed):
		return err
	case s.life.Context().Err() != nil:
		if end := contextError(ctx); end != nil && !errors.Is(err, end) {
			err = fmt.Errorf("%w: %w", err, end)
		}
		return fmt.Errorf("%w: %w", backend.ErrClosed, err)
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		err = fmt.Errorf("%w for the keys under %q (see Permissions in the documentation of package etcdlock)", err, s.root)
	}
	return serverError(ctx, s.client.Endpoints(), err)
}

// errTooSlow is the error of a request that a limit of the driver ended. It is no
// [context.DeadlineExceeded], which is for deadlines of the caller.
var errTooSlow = errors.New("no answer in time")

// serverError adds the servers, unless err names each of them, and the end of ctx. If that
// has not ended, the request ended by a limit of the driver.
func serverError(ctx context.Context, servers []string, err error) error {
	end := contextError(ctx)
	ended := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	switch {
	case end != nil && errors.Is(err, backend.ErrUncertain): // of a batch that goes on
		err = end
	case end == nil && ended:
		err = errTooSlow
	case end == nil || errors.Is(err, end):
	case ended:
		err = end
	default:
		err = fmt.Errorf("%w: %w", err, end)
	}
	for _, server := range servers {
		if !strings.Contains(err.Error(), strings.TrimPrefix(strings.TrimPrefix(server, "http://"), "https://")) {
			return fmt.Errorf("etcd at %s: %w", strings.Join(servers, ","), err)
		}
	}
	return fmt.Errorf("etcd: %w", err)
}

// writeError is readError for a request that changes something. The error is marked as
// NotExecuted if that is certain, and else as Uncertain.
func (s *service) writeError(ctx context.Context, err error) error {
	if notExecuted(err) {
		return backend.NotExecuted(s.readError(ctx, err))
	}
	return backend.Uncertain(s.readError(ctx, err))
}

// notExecuted reports whether the server refused the request, or whether there was no
// connection to send it on.
func notExecuted(err error) bool {
	var e rpctypes.EtcdError
	if !errors.As(err, &e) {
		return failedToDial(err) || !backend.OutcomeUnknown(err)
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
// passed, and errTooSlow if a limit of the driver ended it.
func contextError(ctx context.Context) error {
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		call.Sleep(ctx, 100*time.Millisecond) // gRPC may notice the deadline first
		if ctx.Err() == nil {
			return context.DeadlineExceeded
		}
	}
	if errors.Is(context.Cause(ctx), errTooSlow) {
		return errTooSlow
	}
	return ctx.Err()
}
