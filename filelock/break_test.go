//go:build unix

package filelock

import (
	"errors"
	"testing"

	"github.com/interlock-go/lock/backend"
)

// Break of a holder that is not the present one changes nothing.
func TestBreakComparesTheOwner(t *testing.T) {
	b := open1(t, t.TempDir())
	g := try(t, b, "k")
	var locked *backend.LockedError
	if h, err := b.Break(t.Context(), "k", "earlier"); h != nil || !errors.As(err, &locked) {
		t.Errorf("Break of another owner: %v, %v; want a LockedError", h, err)
	}
	release(t, g)
}
