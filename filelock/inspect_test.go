//go:build unix

package filelock

import (
	"fmt"
	"testing"

	"github.com/interlock-go/lock/backend"
)

// Inspect and List beside directories that are made and deleted.
func TestInspectBesideDeletedDirectories(t *testing.T) {
	b := open1(t, t.TempDir())
	held := try(t, b, "held")
	stop, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				failed <- nil
				return
			default:
			}
			seen := false
			err := b.List(t.Context(), func(i backend.Info) bool { seen = seen || i.Name == "held"; return true })
			if err == nil && !seen {
				err = fmt.Errorf("List does not name the held lock")
			}
			if err == nil {
				_, err = b.Inspect(t.Context(), "used")
			}
			if err != nil {
				failed <- err
				return
			}
		}
	}()
	for range 150 {
		if err := b.touch(); err != nil {
			t.Error(err)
		}
		release(t, try(t, b, "used"))
		if err := b.sweep(0); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	if err := <-failed; err != nil {
		t.Error(err)
	}
	release(t, held)
}
