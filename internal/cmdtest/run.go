// Package cmdtest runs a command line program in tests: it builds the program once,
// starts it, and reads its output while it runs.
package cmdtest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Timeout bounds a step of a test on a busy machine.
const Timeout = 20 * time.Second

var (
	binary     string // the program, built by Main
	buildFlags = []string{"build"}
)

// Main builds the program in dir, runs the tests and returns their exit code.
func Main(m *testing.M, dir string) int {
	out, err := os.MkdirTemp("", "cmdtest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(out)
	binary = filepath.Join(out, "program")
	build := exec.Command("go", append(buildFlags, "-o", binary, ".")...)
	build.Dir = dir
	if text, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building %s: %v\n%s", dir, err, text)
		return 1
	}
	os.Unsetenv("LOCK_URL")
	return m.Run()
}

// Binary returns the path of the program.
func Binary() string { return binary }

// Run is one run of the program.
type Run struct {
	Cmd    *exec.Cmd
	Stdin  io.WriteCloser
	Stdout *Tail
	Stderr *Tail
	Done   chan struct{} // closed when the program has ended

	t    *testing.T
	code int
}

// Begin starts the program in a directory of its own. env are additional variables.
func Begin(t *testing.T, env []string, args ...string) *Run {
	t.Helper()
	r := &Run{t: t, Cmd: exec.Command(binary, args...), Done: make(chan struct{})}
	r.Cmd.Env = append(os.Environ(), env...)
	r.Cmd.Dir = t.TempDir()
	var err error
	if r.Stdin, err = r.Cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	// These pipes end when all processes that write to them have ended.
	var outW, errW *os.File
	r.Stdout, outW = newPipe(t)
	r.Stderr, errW = newPipe(t)
	r.Cmd.Stdout, r.Cmd.Stderr = outW, errW
	if err := r.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	outW.Close()
	errW.Close()
	go func() {
		_ = r.Cmd.Wait()
		r.code = r.Cmd.ProcessState.ExitCode()
		close(r.Done)
	}()
	t.Cleanup(func() {
		_ = r.Cmd.Process.Kill()
		<-r.Done
	})
	return r
}

// Exec runs the program until it ends.
func Exec(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	r := Begin(t, env, args...)
	r.Stdin.Close()
	code = r.Wait()
	return code, r.Stdout.All(), r.Stderr.All()
}

// Wait waits until the program ends and returns its exit code.
func (r *Run) Wait() int {
	r.t.Helper()
	select {
	case <-r.Done:
		return r.code
	case <-time.After(Timeout):
		r.t.Fatalf("%v did not end; stdout %q, stderr %q", r.Cmd.Args, r.Stdout.Text(), r.Stderr.Text())
		return 0
	}
}

// Send sends a signal to the program.
func (r *Run) Send(s syscall.Signal) {
	r.t.Helper()
	if err := r.Cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}
