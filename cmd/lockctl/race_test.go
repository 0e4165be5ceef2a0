//go:build race

package main

import "os"

func init() {
	buildFlags = append(buildFlags, "-race")
	// the detector would have each of the many processes sleep for a second at its end
	os.Setenv("GORACE", "atexit_sleep_ms=0")
}
