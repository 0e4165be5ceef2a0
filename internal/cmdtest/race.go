//go:build race

package cmdtest

import "os"

func init() {
	buildFlags = append(buildFlags, "-race")
	// Without this each of the many processes sleeps for a second when it ends.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
}
