package filelock

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

// An attempt that gets a part of the files that it needs returns an error, and no file stays open but those of a directory
// that is open as a whole.
func TestTooManyOpenFiles(t *testing.T) {
	b := open1(t, t.TempDir())
	release(t, try(t, b, "first")) // what stays open is open
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	for more := range uint64(5) {
		free := lowestDescriptor(t)
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: free + more, Max: was.Max}); err != nil {
			t.Fatal(err)
		}
		g, err := b.TryAcquire(t.Context(), request("second"))
		if e := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); e != nil {
			t.Fatal(e)
		}
		switch {
		case err == nil:
			release(t, g)
		case !errors.Is(err, syscall.EMFILE):
			t.Errorf("with %d more files: want too many open files, got %v", more, err)
		case len(b.open) == 1 && lowestDescriptor(t) != free:
			t.Errorf("with %d more files: a file is left open", more)
		}
	}
}

func lowestDescriptor(t *testing.T) uint64 {
	t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return uint64(f.Fd())
}
