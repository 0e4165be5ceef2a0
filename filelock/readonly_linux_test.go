package filelock

import (
	"io/fs"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

func TestReadOnlyDirectory(t *testing.T) {
	dir, err := os.MkdirTemp("", "filelock-readonly")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(dir)
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 { // root may write anywhere: this thread changes its user id for the file system
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		_ = syscall.Setfsuid(65534)
		defer func() { _ = syscall.Setfsuid(0) }()
	}
	_, err = New(dir)
	wantErr(t, err, fs.ErrPermission)
	if !strings.Contains(err.Error(), dir) {
		t.Errorf("the directory is not named: %v", err)
	}
}
