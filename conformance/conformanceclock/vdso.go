//go:build linux && (amd64 || arm64)

package conformanceclock

import (
	"fmt"
	"os"
	"strconv"
	_ "unsafe" // for linkname
)

const supported = true

// vdsoClockGettime is what the Go runtime calls to read a clock: a function of the kernel, which the runtime finds when
// the process starts. The runtime permits other packages to access it (badlinkname_linux.go).
//
//go:linkname vdsoClockGettime runtime.vdsoClockgettimeSym
var vdsoClockGettime uintptr

// In assembly: a replacement of it, with the address that the runtime may call, and the seconds that it adds to
// CLOCK_REALTIME.
var (
	clockGettimeAddress uintptr
	wrongBy             int64
)

func clockGettime()

var _, _ = clockGettime, &wrongBy // which only assembly uses

func init() {
	text := os.Getenv(variable)
	if text == "" {
		return
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		fmt.Fprintf(os.Stderr, "conformanceclock: %s %q: want seconds\n", variable, text)
		os.Exit(2)
	}
	wrongBy = seconds
	vdsoClockGettime = clockGettimeAddress
}
