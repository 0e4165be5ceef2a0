package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
)

// Why a session ended. In each case its leases cannot be trusted any more.
var (
	errSessionExpired = errors.New("zookeeper: the session has expired") // the server deleted its nodes
	// The server keeps the session for up to its timeout after the last packet it received.
	errNoAnswer      = errors.New("zookeeper: the session was given up after a timeout without an answer")
	errSessionClosed = errors.New("zookeeper: the session was closed")
)

// errTooSlow is the error of a request that a limit of the driver ended. It is no
// [context.DeadlineExceeded], which is for deadlines of the caller.
var errTooSlow = errors.New("no answer in time")

func withLimit(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, errTooSlow)
}

// endOf returns why ctx has ended: the error of the caller's context, or errTooSlow.
func endOf(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errTooSlow) {
		return errTooSlow
	}
	return ctx.Err()
}

// dialError returns the error of a dial under ctx without the deadline of a limit.
func dialError(ctx context.Context, addr string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("%s: %w", addr, cmp.Or(endOf(ctx), errTooSlow))}
	}
	return err
}

func sessionEnded(err error) bool {
	return errors.Is(err, errSessionExpired) || errors.Is(err, errNoAnswer) || errors.Is(err, errSessionClosed)
}

// notSent is the error of a request that was never passed to the client library.
type notSent struct{ error }

func (n notSent) Unwrap() error { return n.error }

// refusals are replies of the server to a request that it did not execute.
var refusals = []error{
	zk.ErrNoNode, zk.ErrNoAuth, zk.ErrBadVersion, zk.ErrNoChildrenForEphemerals, zk.ErrNodeExists, zk.ErrNotEmpty,
	zk.ErrInvalidACL, zk.ErrInvalidFlags, zk.ErrAuthFailed, zk.ErrBadArguments, zk.ErrInvalidPath, zk.ErrSessionMoved,
	zk.ErrReconfigDisabled,
}

// answered reports whether err, which may be nil, is a reply of the server.
func answered(err error) bool {
	return err == nil || unknownCode(err) || slices.ContainsFunc(refusals, func(r error) bool { return errors.Is(err, r) })
}

// unknownCode reports whether err is a reply whose code the client library does not know, for
// example quota exceeded, throttled, unimplemented.
func unknownCode(err error) bool { return strings.HasPrefix(err.Error(), "unknown error: ") }

// connectionLost reports whether a request failed with its connection.
func connectionLost(err error) bool {
	var op *net.OpError
	return errors.Is(err, zk.ErrConnectionClosed) || errors.As(err, &op)
}

func permissionDenied(err error) bool {
	return errors.Is(err, zk.ErrNoAuth) || errors.Is(err, zk.ErrInvalidACL) || errors.Is(err, zk.ErrAuthFailed)
}

// explain adds the node's path, or how to fix the cause where that is known.
func explain(err error, path string) error {
	switch {
	case err == nil:
		return nil
	case permissionDenied(err):
		return fmt.Errorf("zookeeper: node %.200q: %w (see Permissions in the documentation of package zklock)", path, err)
	case errors.Is(err, backend.ErrClosed), errors.Is(err, backend.ErrInvalid), sessionEnded(err):
		return err
	case connectionLost(err), errors.Is(err, zk.ErrClosing):
		return fmt.Errorf("zookeeper: connection lost: %w", err)
	}
	return fmt.Errorf("zookeeper: node %.200q: %w", path, err)
}

// explainChange explains the error of a request that changes something, and says
// whether it may have been executed. The end of a session is returned as it is.
func explainChange(err error, path string) error {
	switch {
	case err == nil, sessionEnded(err):
		return err
	case answered(err), errors.As(err, &notSent{}):
		return backend.NotExecuted(explain(err, path))
	}
	return backend.Uncertain(explain(err, path))
}
