//go:build !(linux || darwin || freebsd || dragonfly || openbsd)

package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
)

const (
	exclusive = 0
	shared    = 0
	nonBlock  = 0
)

func supported() error {
	return fmt.Errorf("file locks %w on %s: they need flock(2) and a way to recognize network file systems (linux, darwin, freebsd, dragonfly, openbsd)",
		errors.ErrUnsupported, runtime.GOOS)
}

// New refuses before any of these is reached.

func tryFlock(*os.File, int) (bool, error)   { return false, errors.ErrUnsupported }
func unflock(*os.File)                       {}
func checkFS(string, bool) error             { return errors.ErrUnsupported }
func ownerOf(fs.FileInfo) (uid, gid uint32)  { return 0, 0 }
func inheritable(*os.File) (*os.File, error) { return nil, errors.ErrUnsupported }
func linksOf(fs.FileInfo) uint64             { return 1 }
