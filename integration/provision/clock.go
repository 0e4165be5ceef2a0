package provision

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Go program reads the clock without the C library, so nothing that is put
// before that library can shift it. Package time itself is replaced, for one
// program: its Now adds the seconds of an environment variable to the wall clock.
// The monotonic clock stays as it is, as it does when a machine's clock is set.
const clockVariable = "INTERLOCK_WRONG_CLOCK"

var clockNow = regexp.MustCompile(`func Now\(\) Time \{\n\tsec, nsec, mono := \w+\(\)\n`)

const clockPatch = `
var wrongClock = func() int64 {
	s, _ := syscall.Getenv("` + clockVariable + `")
	sign, n := int64(1), int64(0)
	for i := range len(s) {
		if s[i] == '-' {
			sign = -1
		} else {
			n = 10*n + int64(s[i]-'0')
		}
	}
	return sign * n
}()
`

// ClockWorker returns the command of a worker of the conformance suite whose wall
// clock is wrong. self is the command of one whose clock is right.
func ClockWorker(t testing.TB, self func() *exec.Cmd) func(off time.Duration) *exec.Cmd {
	t.Helper()
	worker, err := buildClockWorker()
	if err != nil {
		t.Fatalf("provision: a worker with a wrong clock: %v", err)
	}
	return func(off time.Duration) *exec.Cmd {
		cmd := self()
		cmd.Path, cmd.Args = worker, []string{worker}
		cmd.Env = append(cmd.Env, clockVariable+"="+strconv.Itoa(int(off/time.Second)))
		return cmd
	}
}

var buildClockWorker = sync.OnceValues(func() (string, error) {
	// The folder stays: the next run of any test finds the program built.
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "interlock-test", "clock")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
	}
	original := filepath.Join(strings.TrimSpace(string(goroot)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	at := clockNow.FindIndex(source)
	if at == nil {
		return "", fmt.Errorf("%s: time.Now does not look as expected", original)
	}
	patched := string(source[:at[1]]) + "\tsec += wrongClock\n" + string(source[at[1]:]) + clockPatch
	if !strings.Contains(patched, "\n\t\"syscall\"\n") {
		patched = strings.Replace(patched, "import (\n", "import (\n\t\"syscall\"\n", 1)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: filepath.Join(dir, "time.go")}})
	if err != nil {
		return "", err
	}
	for name, content := range map[string][]byte{"time.go": []byte(patched), "overlay.json": overlay} {
		if err := replaceFile(filepath.Join(dir, name), content); err != nil {
			return "", err
		}
	}
	worker := filepath.Join(dir, fmt.Sprintf("worker-%d", os.Getpid()))
	// The whole program is compiled for this, which takes a third less time without optimization.
	build := exec.Command("go", "build", "-gcflags=all=-N -l", "-overlay", filepath.Join(dir, "overlay.json"), "-o", worker, "github.com/interlock-go/lock/integration/worker")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", build, err, out)
	}
	atExit(func() error { return os.Remove(worker) })
	return worker, checkClock(worker)
})

// replaceFile writes only what changed, so that the build cache stays good.
func replaceFile(name string, content []byte) error {
	if old, err := os.ReadFile(name); err == nil && string(old) == string(content) {
		return nil
	}
	return os.WriteFile(name, content, 0o600)
}

// checkClock makes sure that the program's clock is wrong by what was asked for.
func checkClock(worker string) error {
	for _, off := range []int64{3600, -3600} {
		cmd := exec.Command(worker, "clock")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", clockVariable, off))
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%s clock: %w", worker, err)
		}
		says, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
		if err != nil {
			return err
		}
		if d := says - time.Now().Unix() - off; d < -60 || d > 60 {
			return fmt.Errorf("%s with a clock that should be %d s wrong is %d s off that", worker, off, d)
		}
	}
	return nil
}
