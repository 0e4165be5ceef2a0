package lockcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/interlock-go/lock"
)

// Exit codes of a program. The command run exits with the code of its child command,
// or 128+n if signal n ended that. The numbers are those of sysexits.h and of the
// shell, which commands seldom use for anything else. With -o json the message on
// stderr says whether the code is the program's or the child command's.
const (
	ExitFailed        = 1   // a negative answer: break was declined, conformance found a failure
	ExitUsage         = 64  // a flag, name, URL or duration that can never work
	ExitUnavailable   = 69  // the service does not answer, refuses, or lacks the operation
	ExitNotAcquired   = 75  // the command was not run: the lock was not acquired in time
	ExitLost          = 76  // the command ended, or was ended, after its lock was lost
	ExitNotExecutable = 126 // the command cannot be executed
	ExitNotFound      = 127 // the command was not found
	ExitSignal        = 128 // plus the number of the signal
)

const exitCodesHelp = `Exit codes:
  the command's own, or 128+n if signal n ended it, or ended lockctl during the wait
   64  wrong usage: the message names the argument and the accepted values
   69  the service did not answer or refused
   75  not acquired in time, or the service did not answer until the wait limit; the
       command was not run
   76  the lock was lost before it was released; a command that still ran has been ended
  126  the command cannot be executed
  127  the command was not found`

// codedError is an error with an exit code.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// WithCode returns err with an exit code.
func WithCode(code int, err error) error { return &codedError{code, err} }

// Unavailable returns err with ExitUnavailable, unless err has a more specific code.
func Unavailable(err error) error {
	if codeOf(err) == ExitFailed {
		return WithCode(ExitUnavailable, err)
	}
	return err
}

// Usagef returns an error with ExitUsage.
func Usagef(format string, args ...any) error {
	return WithCode(ExitUsage, fmt.Errorf(format, args...))
}

// exitStatus is the exit code of a child command. It causes no message.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// codeOf returns the exit code of an error.
func codeOf(err error) int {
	var (
		coded  *codedError
		status exitStatus
		op     *lock.Error
	)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &status):
		return int(status)
	case errors.Is(err, lock.ErrInvalid):
		return ExitUsage
	case errors.Is(err, lock.ErrLost):
		return ExitLost
	case errors.Is(err, lock.ErrLocked), errors.Is(err, lock.ErrWaitLimit), errors.Is(err, context.DeadlineExceeded) && isAcquire(err):
		return ExitNotAcquired
	case errors.Is(err, exec.ErrNotFound):
		return ExitNotFound
	case errors.As(err, &op), errors.Is(err, errors.ErrUnsupported):
		return ExitUnavailable
	}
	return ExitFailed
}

func isAcquire(err error) bool {
	var op *lock.Error
	return errors.As(err, &op) && (op.Op == "lock" || op.Op == "try")
}

// isOwnError reports whether err is more than the exit code of the child command.
func isOwnError(err error) bool {
	var status exitStatus
	return err != nil && !errors.As(err, &status)
}

// startCode returns the exit code for a command that cannot be run, as shells do.
func startCode(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return ExitNotFound
	}
	return ExitNotExecutable
}

var reasons = map[int]string{
	ExitUsage: "usage", ExitUnavailable: "unavailable", ExitNotAcquired: "not_acquired", ExitLost: "lost",
	ExitNotExecutable: "not_executable", ExitNotFound: "not_found", ExitFailed: "failed",
}

// reason returns a word for an exit code, for programs that read -o json.
func reason(code int) string {
	if r := reasons[code]; r != "" {
		return r
	}
	if code > ExitSignal {
		return "signal"
	}
	return "command"
}
