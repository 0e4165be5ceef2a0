//go:build linux || darwin || freebsd || dragonfly || openbsd

package filelock

import (
	"errors"
	"os"
	"syscall"
)

const (
	exclusive = syscall.LOCK_EX
	shared    = syscall.LOCK_SH

	// noFollow refuses a link to a file outside of the directory, and does not block on
	// a pipe.
	noFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK
)

func supported() error { return nil }

// tryFlock reports whether f now has the flock; it never waits. A flock belongs to
// the open file description, so it excludes others in this process as well.
func tryFlock(f *os.File, how int) (bool, error) {
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, err
		}
	}
}

func unflock(f *os.File) {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) // closing the file follows
}
