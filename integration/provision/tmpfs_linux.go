package provision

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// Tmpfs returns a folder with a file system of its own that holds so many bytes. It ends with the test.
func Tmpfs(t testing.TB, bytes int) string {
	t.Helper()
	dir := t.TempDir()
	options := fmt.Sprintf("size=%d,mode=0777", bytes)
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options)
	sudo := err != nil && os.Getuid() != 0
	if sudo {
		err = exec.Command("sudo", "-n", "mount", "-t", "tmpfs", "-o", options, "tmpfs", dir).Run()
	}
	if err != nil {
		unavailable(t, kind{flavour: "tmpfs"}, fmt.Errorf("mount: %w", err))
	}
	t.Cleanup(func() {
		var err error
		if sudo {
			err = exec.Command("sudo", "-n", "umount", "-l", dir).Run()
		} else {
			err = syscall.Unmount(dir, syscall.MNT_DETACH) // a process that ends may still have a file open
		}
		if err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}
