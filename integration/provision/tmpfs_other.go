//go:build !linux

package provision

import "testing"

// Tmpfs is of Linux only.
func Tmpfs(t testing.TB, _ int) string {
	t.Helper()
	t.Skip("no tmpfs can be mounted on this system")
	return ""
}
