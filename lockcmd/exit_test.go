package lockcmd

import (
	"errors"
	"os"
	"testing"

	"github.com/interlock-go/lock"
)

func TestCodeOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{exitStatus(7), 7},
		{&lock.Error{Op: "lock", Err: &lock.LockedError{}}, ExitNotAcquired},
		{&lock.Error{Op: "lock", Err: lock.ErrWaitLimit}, ExitNotAcquired},
		{&lock.Error{Op: "lock", Err: errors.Join(lock.ErrUncertain, os.ErrDeadlineExceeded)}, ExitUnavailable},
		{&lock.Error{Op: "open", Err: os.ErrDeadlineExceeded}, ExitUnavailable},
		{&lock.Error{Op: "hold", Err: lock.ErrLost}, ExitLost},
		{&lock.Error{Op: "lock", Err: lock.ErrInvalid}, ExitUsage},
		{&codedError{126, lock.ErrLost}, 126},
		{errors.New("x"), ExitFailed},
	} {
		if got := codeOf(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}
