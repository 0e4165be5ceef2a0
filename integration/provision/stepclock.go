package provision

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

//go:embed testdata/stepped_clock.c
var steppedClockSource []byte

// Clock is the wall clock of a server, which a test can step while the server runs. Give it
// to the server as Options.Clock. It needs Linux, a C compiler and a local binary.
type Clock struct {
	library string
	file    *os.File
}

// NewClock returns a clock that is right. Without a C compiler the test is skipped, or fails
// where kind is required.
func NewClock(t testing.TB, flavour string) *Clock {
	t.Helper()
	library, err := buildSteppedClock()
	if err != nil {
		unavailable(t, kindOfRedis(t, flavour), fmt.Errorf("a clock that can be stepped: %w", err))
	}
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "clock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	c := &Clock{library: library, file: f}
	if err := c.Step(0); err != nil {
		t.Fatal(err)
	}
	return c
}

// Step makes the clock wrong by off, from the next time that the server reads it.
func (c *Clock) Step(off time.Duration) error {
	_, err := c.file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(off.Microseconds())), 0)
	return err
}

func (c *Clock) env() []string {
	return []string{"LD_PRELOAD=" + c.library, "STEPPED_CLOCK=" + c.file.Name()}
}

var buildSteppedClock = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "interlock-clock-")
	if err != nil {
		return "", err
	}
	atExit(func() error { return os.RemoveAll(dir) })
	source, library := filepath.Join(dir, "stepped_clock.c"), filepath.Join(dir, "stepped_clock.so")
	if err := os.WriteFile(source, steppedClockSource, 0o600); err != nil {
		return "", err
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-o", library, source).CombinedOutput(); err != nil {
		return "", fmt.Errorf("cc: %w\n%s", err, out)
	}
	return library, nil
})
