//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/internal/cmdtest"
)

// self is this test binary, which is also the command that lockctl runs.
var self string

func TestMain(m *testing.M) {
	if mode := os.Getenv("LOCKCTL_TEST_COMMAND"); mode != "" {
		os.Exit(command(mode))
	}
	var err error
	if self, err = os.Executable(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// nohup ignores SIGHUP, and then lockctl ignores it too. A signal that is caught here
	// is not ignored in a child.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	setRedisLogger(nil)
	os.Exit(cmdtest.Main(m, "."))
}

// command is the main function of the command that lockctl runs.
func command(mode string) int {
	if watch := os.Getenv("LOCKCTL_TEST_WATCH"); watch != "" {
		if _, err := net.Dial("unix", watch); err != nil { // open until this process ends
			fmt.Println(err)
			return 6
		}
	}
	ch := make(chan os.Signal, 16)
	switch mode {
	case "orphan": // prints the process id of an orphan that soon ends
		out, err := exec.Command("sh", "-c", "sleep 0.1 >&2 & echo $!").Output()
		fmt.Printf("orphan %s%v\nready\n", out, err)
		time.Sleep(time.Minute) // ends if the test fails
	case "ignored": // prints the signals that it ignores
		text, err := os.ReadFile("/proc/self/status")
		_, ignored, _ := strings.Cut(string(text), "SigIgn:\t")
		fmt.Printf("ignores %.16s %v\n", ignored, err)
		time.Sleep(time.Minute)
	case "signals": // prints each signal, ends with TERM
		signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT)
		fmt.Println("ready")
		for s := range ch {
			fmt.Println(s)
			if s == syscall.SIGTERM {
				return 3
			}
		}
	case "stubborn": // ignores TERM
		signal.Notify(ch, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		fmt.Println("ready")
		go func() {
			for s := range ch {
				fmt.Println(s)
			}
		}()
		time.Sleep(time.Minute) // ends if the test fails
		return 4
	case "parent", "leaves": // ends with TERM; its child ignores TERM, and leaves the process group
		signal.Notify(ch, syscall.SIGTERM)
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "LOCKCTL_TEST_COMMAND=stubborn")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		child.SysProcAttr = &syscall.SysProcAttr{Setpgid: mode == "leaves"}
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

// lateness measures how late timers are. The returned function ends the measurement and
// returns the maximum.
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
			time.Sleep(tick) // the timer that is measured
			most = max(most, time.Since(begun)-tick)
		}
	}()
	return func() time.Duration {
		close(stop)
		return <-worst
	}
}

// onTime runs a scenario in which a command must be dead in time: a margin and a lead
// of 213 ms before the end of a TTL of 3 s. If timers were late by a good part of that, a
// failure shows nothing: then the scenario is repeated, up to three times.
func onTime(t *testing.T, scenario func() (wrong string, late time.Duration)) {
	t.Helper()
	for n := 1; ; n++ {
		wrong, late := scenario()
		if wrong == "" {
			return
		}
		if n == 3 || late < 50*time.Millisecond {
			t.Fatalf("%s; timers were up to %v late", wrong, late)
		}
		t.Logf("%s; timers were up to %v late: repeating", wrong, late)
	}
}

// processes returns the number of processes of a command of this binary.
func processes(mode string) int {
	if mode == "parent" || mode == "leaves" {
		return 2
	}
	return 1
}

// mode returns the variables that make this binary a command.
func mode(mode string) []string { return []string{"LOCKCTL_TEST_COMMAND=" + mode} }

// watchDeath returns a variable for the environment of commands, and a function that
// waits until n commands have begun and ended, and returns the time of the last end.
func watchDeath(t *testing.T, n int) (env string, dead func() time.Time) {
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
			case <-time.After(cmdtest.Timeout):
				t.Fatal("a command did not end")
			}
		}
		return last
	}
}

// awaitHolder waits until want accepts the holder of a lock. It returns the holder and
// when the request was sent.
func awaitHolder(t *testing.T, c *lock.Client, name string, want func(*lock.Holder) bool) (lock.Holder, time.Time) {
	t.Helper()
	deadline := time.Now().Add(cmdtest.Timeout)
	for {
		sent := time.Now()
		info, err := c.Inspect(t.Context(), name)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if info.Holder != nil && want(info.Holder) {
			return *info.Holder, sent
		}
		if sent.After(deadline) {
			t.Fatalf("%q has no holder as wanted: %+v", name, info.Holder)
		}
		time.Sleep(time.Millisecond)
	}
}
