package provision

import (
	"os"
	"testing"
)

// allVariable selects what runs. If it is empty, each backend runs in its current version (make test). If it is set,
// all versions and topologies run (make test-all).
const allVariable = "LOCK_TEST_ALL"

// All reports whether all versions and topologies are tested.
func All() bool { return os.Getenv(allVariable) != "" }

// LeaveOut skips the test if LOCK_TEST_ALL is empty. what names what is not tested then, such as "etcd-3-5" or "Redis
// Cluster"; hack/runtests lists it at the end of a run.
func LeaveOut(t testing.TB, what string) {
	t.Helper()
	if !All() {
		t.Skipf("left out: %s (%s=1 runs it)", what, allVariable)
	}
}
