package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
)

// Classify explains the error of a request and marks its outcome: ErrUncertain if the
// server may have executed the request, NotExecuted if it certainly did not.
func Classify(err error, sending *call.Sending) error {
	if err == nil {
		return nil
	}
	var reply redis.Error
	var op *net.OpError
	switch {
	case !sending.Written(): // there was no connection
	case errors.As(err, &reply) && !insideScript(err): // the server refused the request
	case errors.As(err, &op) && op.Op == "dial", errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrClosed):
		// it was not sent again after a redirection
	default:
		return backend.Uncertain(Failure(err))
	}
	return backend.NotExecuted(Failure(err))
}

// insideScript reports whether err was raised by a command inside a script that may
// have executed a write before.
func insideScript(err error) bool {
	s := err.Error()
	if !strings.Contains(s, "user_script") && !scriptDenied(s) {
		return false
	}
	// The server raises these errors at the first write of a script only.
	for _, first := range []string{"OOM command not allowed", "READONLY ", "MISCONF ", "NOREPLICAS "} {
		if strings.Contains(s, first) {
			return false
		}
	}
	return true
}

// scriptDenied reports whether the user lacks a permission that a script needs.
func scriptDenied(s string) bool {
	return strings.Contains(s, "The user executing the script") || strings.Contains(s, "ACL failure in script")
}

// Failure explains an error of the client library. It does not mark the outcome.
func Failure(err error) error {
	f := failure{err: err}
	switch {
	case redis.IsPermissionError(err), scriptDenied(err.Error()):
		f.hint = " (see Permissions in the documentation of package redislock)"
	case errors.Is(err, redis.ErrPoolTimeout):
		f.hint = " (raise pool_size)"
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w: %w", backend.ErrClosed, err)
	}
	return f
}

// failure is an error of the client library. The timeouts of a connection match
// context.DeadlineExceeded; a failure does not, because it is no deadline of the caller.
type failure struct {
	err  error
	hint string
}

func (f failure) Error() string {
	return "redis: " + strings.TrimPrefix(f.err.Error(), "redis: ") + f.hint
}

func (f failure) Is(target error) bool {
	return target != context.DeadlineExceeded && target != context.Canceled && errors.Is(f.err, target)
}

func (f failure) As(target any) bool { return errors.As(f.err, target) }

// TimedOut reports whether a request ended without a reply, or with the deadline of its context.
func TimedOut(err error) bool {
	if err == nil {
		return false
	}
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// CannotWrite reports whether the server refused a request because it is a replica or loads its data. The request
// was not executed.
func CannotWrite(err error) bool {
	if err == nil {
		return false
	}
	var reply redis.Error
	if !errors.As(err, &reply) || insideScript(err) {
		return false
	}
	s := err.Error()
	return strings.Contains(s, "READONLY ") || strings.HasPrefix(s, "LOADING ") || strings.HasPrefix(s, "MASTERDOWN ")
}
