package mysql_test

import (
	"testing"

	"github.com/interlock-go/lock/integration/provision"
)

// TestOpenReadOnly: a client that is opened on a read-only server inspects, and acquires locks when that accepts writes.
func TestOpenReadOnly(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin, url := withApp(t, s)
		l, err := open(t, url).Mutex("held").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		exec(t, admin, "SET GLOBAL read_only=1")
		c := open(t, url)
		if info, err := c.Inspect(t.Context(), "held"); err != nil || info.Holder == nil {
			t.Errorf("Inspect: %+v, %v", info, err)
		}
		if _, err := c.Mutex("other").TryLock(t.Context()); err == nil {
			t.Error("a grant by a read-only server")
		}
		exec(t, admin, "SET GLOBAL read_only=0")
		got := waiting(t, c, "held", 1)
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if err := granted(t, "the waiter", got).Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
