//go:build linux || darwin || freebsd || dragonfly || openbsd

package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

const (
	exclusive = syscall.LOCK_EX
	shared    = syscall.LOCK_SH

	nonBlock = syscall.O_NONBLOCK // where a pipe is in the place of a file
)

func supported() error { return nil }

func errRemote(path, kind string) error {
	return fmt.Errorf("file locks %w in %q: it is on %sa network file system, where flock does not exclude other machines "+
		"reliably; use a local directory or another backend", errors.ErrUnsupported, path, kind)
}

// tryFlock reports whether f now has the flock; it never waits. A flock belongs to the open file description, so it
// excludes others in this process as well.
func tryFlock(f *os.File, how int) (bool, error) {
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, &fs.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
	}
}

func unflock(f *os.File) {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) // closing the file follows
}

// inheritable returns a descriptor of f that programs inherit which this process starts.
func inheritable(f *os.File) (*os.File, error) {
	fd, err := syscall.Dup(int(f.Fd())) // without close-on-exec
	if err != nil {
		return nil, &fs.PathError{Op: "dup", Path: f.Name(), Err: err}
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

func ownerOf(info fs.FileInfo) (uid, gid uint32) {
	st := info.Sys().(*syscall.Stat_t)
	return st.Uid, st.Gid
}

// linksOf returns the number of hard links, whose type differs between systems.
func linksOf(info fs.FileInfo) uint64 { return widened(info.Sys().(*syscall.Stat_t).Nlink) }

func widened[T ~uint16 | ~uint32 | ~uint64](n T) uint64 { return uint64(n) }
