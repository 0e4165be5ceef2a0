//go:build unix

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var (
	buildFlags = []string{"build"}
	binary     string // lockctl, built once
	self       string // this test binary, which is also the command that is run
)

// patience bounds what should happen soon, on a machine that is busy.
const patience = 20 * time.Second

func TestMain(m *testing.M) {
	if how := os.Getenv("LOCKCTL_TEST_COMMAND"); how != "" {
		os.Exit(command(how))
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "lockctl-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if self, err = os.Executable(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binary = filepath.Join(dir, "lockctl")
	build := exec.Command("go", append(buildFlags, "-o", binary, ".")...)
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building lockctl: %v\n%s", err, out)
		return 1
	}
	os.Unsetenv(envURL)
	// Under nohup it is ignored, and lockctl rightly keeps to that; what is caught here is not inherited.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	quietRedis(nil)
	return m.Run()
}

// command is what this binary does when lockctl runs it.
func command(how string) int {
	if watch := os.Getenv("LOCKCTL_TEST_WATCH"); watch != "" {
		if _, err := net.Dial("unix", watch); err != nil { // open as long as this process lives
			fmt.Println(err)
			return 6
		}
	}
	ch := make(chan os.Signal, 16)
	switch how {
	case "signals": // tells each signal it gets, ends with TERM
		signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT)
		fmt.Println("ready")
		for s := range ch {
			fmt.Println(s)
			if s == syscall.SIGTERM {
				return 3
			}
		}
	case "stubborn": // does not end when told
		signal.Notify(ch, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		fmt.Println("ready")
		go func() {
			for s := range ch {
				fmt.Println(s)
			}
		}()
		time.Sleep(time.Minute) // not for ever, should the test fail
		return 4
	case "parent": // ends when told; what it has started does not
		signal.Notify(ch, syscall.SIGTERM)
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "LOCKCTL_TEST_COMMAND=stubborn")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			fmt.Println(err)
			return 5
		}
		<-ch
		return 0
	case "asks": // reads a line from the terminal
		fmt.Println("ready")
		line, err := bufio.NewReader(os.Stdin).ReadString('\n')
		fmt.Printf("read %q %v\n", line, err)
		return 0
	}
	return 9
}

// run is one run of the lockctl binary.
type run struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *tail
	stderr *tail
	done   chan struct{}
	code   int
}

// begin starts lockctl. extra are variables of its environment.
func begin(t *testing.T, extra []string, args ...string) *run {
	t.Helper()
	r := &run{t: t, cmd: exec.Command(binary, args...), done: make(chan struct{})}
	r.cmd.Env = append(os.Environ(), extra...)
	r.cmd.Dir = t.TempDir()
	var err error
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	// pipes of our own: their end is that of all processes that write to them
	var outW, errW *os.File
	r.stdout, outW = newTail(t)
	r.stderr, errW = newTail(t)
	r.cmd.Stdout, r.cmd.Stderr = outW, errW
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	outW.Close()
	errW.Close()
	go func() {
		_ = r.cmd.Wait()
		r.code = r.cmd.ProcessState.ExitCode()
		close(r.done)
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill() // its command goes with it, or ends after a minute
		<-r.done
	})
	return r
}

// lockctl runs lockctl to its end.
func lockctl(t *testing.T, extra []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	r := begin(t, extra, args...)
	r.stdin.Close()
	code = r.wait()
	return code, r.stdout.all(), r.stderr.all()
}

func (r *run) wait() int {
	r.t.Helper()
	select {
	case <-r.done:
		return r.code
	case <-time.After(patience):
		r.t.Fatalf("%v did not end; stdout %q, stderr %q", r.cmd.Args, r.stdout.text(), r.stderr.text())
		return 0
	}
}

func (r *run) send(s syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// tail keeps what is written to a pipe.
type tail struct {
	t     *testing.T
	mu    sync.Mutex
	buf   bytes.Buffer
	news  chan struct{} // closed and replaced when there is more
	ended bool
}

func newTail(t *testing.T) (*tail, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	o := &tail{t: t, news: make(chan struct{})}
	go o.read(r)
	return o, w
}

func (o *tail) read(r io.ReadCloser) {
	defer r.Close()
	chunk := make([]byte, 4096)
	for {
		n, err := r.Read(chunk)
		o.mu.Lock()
		o.buf.Write(chunk[:n])
		if err != nil {
			o.ended = true
		}
		close(o.news)
		o.news = make(chan struct{})
		o.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (o *tail) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// until waits for a condition on what was written.
func (o *tail) until(what string, ok func(text string, ended bool) bool) {
	o.t.Helper()
	deadline := time.After(patience)
	for {
		o.mu.Lock()
		text, ended, news := o.buf.String(), o.ended, o.news
		o.mu.Unlock()
		if ok(text, ended) {
			return
		}
		if ended {
			o.t.Fatalf("ended without %s: %q", what, text)
		}
		select {
		case <-news:
		case <-deadline:
			o.t.Fatalf("no %s in %q", what, text)
		}
	}
}

func (o *tail) contains(s string) {
	o.t.Helper()
	o.until(strconv.Quote(s), func(text string, _ bool) bool { return strings.Contains(text, s) })
}

// all waits until every process that could write is gone.
func (o *tail) all() string {
	o.t.Helper()
	o.until("end", func(_ string, ended bool) bool { return ended })
	return o.text()
}

// lateness begins to measure how late timers are. What it returns ends that and tells
// the worst.
func lateness(t *testing.T) func() time.Duration {
	t.Helper()
	const tick = 5 * time.Millisecond
	stop, worst := make(chan struct{}), make(chan time.Duration, 1)
	go func() {
		var most time.Duration
		for {
			select {
			case <-stop:
				worst <- most
				return
			case <-t.Context().Done():
				return
			default:
			}
			begun := time.Now()
			time.Sleep(tick) // what is measured
			most = max(most, time.Since(begun)-tick)
		}
	}()
	return func() time.Duration {
		close(stop)
		return <-worst
	}
}

// onTime makes a scene in which a command must be dead in time: a margin and a lead
// of 213 ms before the end of a TTL of 3 s. A machine whose timers were late by a good part
// of that can show nothing wrong: then the scene is made again, three times in all.
func onTime(t *testing.T, scene func() (wrong string, late time.Duration)) {
	t.Helper()
	for n := 1; ; n++ {
		wrong, late := scene()
		if wrong == "" {
			return
		}
		if n == 3 || late < 50*time.Millisecond {
			t.Fatalf("%s; timers were up to %v late", wrong, late)
		}
		t.Logf("%s; timers were up to %v late: once more", wrong, late)
	}
}

// members is how many processes a command of this binary consists of.
func members(how string) int {
	if how == "parent" {
		return 2
	}
	return 1
}

// does are the variables that make this binary behave as a command.
func does(how string) []string { return []string{"LOCKCTL_TEST_COMMAND=" + how} }

// watch returns a variable for the environment of commands, and a function that
// waits until n of them have come and all are dead, and tells when that was.
func watch(t *testing.T, n int) (env string, dead func() time.Time) {
	t.Helper()
	dir, err := os.MkdirTemp("", "lw") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(); os.RemoveAll(dir) })
	ends := make(chan time.Time, n)
	for range n {
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			_, _ = c.Read(make([]byte, 1))
			ends <- time.Now()
		}()
	}
	return "LOCKCTL_TEST_WATCH=" + path, func() time.Time {
		t.Helper()
		var last time.Time
		for range n {
			select {
			case last = <-ends:
			case <-time.After(patience):
				t.Fatal("a command did not end")
			}
		}
		return last
	}
}

func fileURL(t *testing.T) string { t.Helper(); return "file://" + t.TempDir() }
