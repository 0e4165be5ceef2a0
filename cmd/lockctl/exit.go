package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/interlock-go/lock"
)

// The exit codes that are lockctl's own. "run" otherwise exits with the code of
// its command, or 128+n if a signal n ended that. The numbers are those of
// sysexits.h and of the shell, which commands seldom use for anything else; with
// --json the message on stderr tells for certain whose code it is.
const (
	codeFailed      = 1   // a negative answer: break was declined, conformance found a failure
	codeUsage       = 64  // a flag, name, URL or duration that can never work
	codeUnavailable = 69  // the service does not answer, refuses, or lacks the operation
	codeNotAcquired = 75  // the command was not run: the lock was not acquired in time
	codeLost        = 76  // the command was ended, or ended, after its lock had been lost
	codeNotRunnable = 126 // the command was found but cannot be executed
	codeNotFound    = 127 // the command was not found
	codeSignal      = 128 // plus the signal's number
)

const exitCodesHelp = `Exit codes:
  the command's own, or 128+n if signal n ended it or ended lockctl while it waited
   64  wrong usage: the message names what, and what is accepted
   69  the service that keeps the locks did not answer or refused
   75  not acquired in time; the command was not run
   76  the lock was lost while the command ran; the command has been ended
  126  the command cannot be executed
  127  the command was not found`

// failure is an error with the code to exit with.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func usagef(format string, args ...any) error {
	return &failure{codeUsage, fmt.Errorf(format, args...)}
}

// exitStatus is how a command ended that ran to its end: a code, and nothing for
// lockctl to say.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// codeOf tells the exit code that an error stands for.
func codeOf(err error) int {
	var (
		f      *failure
		status exitStatus
		of     *lock.Error
	)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &f):
		return f.code
	case errors.As(err, &status):
		return int(status)
	case errors.Is(err, lock.ErrInvalid):
		return codeUsage
	case errors.Is(err, lock.ErrLost):
		return codeLost
	case errors.Is(err, lock.ErrLocked), errors.Is(err, context.DeadlineExceeded) && isAcquire(err):
		return codeNotAcquired
	case errors.Is(err, exec.ErrNotFound):
		return codeNotFound
	case errors.As(err, &of), errors.Is(err, errors.ErrUnsupported):
		return codeUnavailable
	}
	return codeFailed
}

func isAcquire(err error) bool {
	var of *lock.Error
	return errors.As(err, &of) && (of.Op == "lock" || of.Op == "try")
}

// isLockError tells whether an error is of the library.
func isLockError(err error) bool {
	var of *lock.Error
	return errors.As(err, &of)
}

// startCode tells why a command cannot be run, as shells do.
func startCode(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return codeNotFound
	}
	return codeNotRunnable
}

// reason is a word for programs that read --json.
func reason(code int) string {
	switch code {
	case codeUsage:
		return "usage"
	case codeUnavailable:
		return "unavailable"
	case codeNotAcquired:
		return "not_acquired"
	case codeLost:
		return "lost"
	case codeNotRunnable:
		return "not_executable"
	case codeNotFound:
		return "not_found"
	case codeFailed:
		return "failed"
	}
	if code > codeSignal {
		return "signal"
	}
	return "command"
}
