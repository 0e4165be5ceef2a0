//go:build darwin || freebsd || dragonfly || openbsd

package filelock

import (
	"fmt"
	"syscall"
)

// mntLocal is MNT_LOCAL, which these systems set on file systems stored locally.
const mntLocal = 0x1000

// checkFS does not look for FUSE: the flag also says whether FUSE is local.
func checkFS(path string, allowFUSE bool) error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return fmt.Errorf("file system of %q: %w", path, err)
	}
	if mountFlags(&st)&mntLocal == 0 && !allowFUSE {
		return errRemote(path, "")
	}
	return nil
}
