package suite

import (
	"bufio"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/conformance"
)

// StoppedWaiter stops the process of a waiter for longer than its TTL. When the process goes
// on, the waiter must queue again, since its context has not ended, and get the lock.
func StoppedWaiter(t *testing.T, url string, ttl time.Duration) {
	c, err := lock.Open(t.Context(), url, lock.WithTTL(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	held, err := c.Mutex("stopped-waiter").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	worker := conformance.Self(url)()
	in, err := worker.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := worker.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = worker.Process.Kill() // it may have ended
		_ = worker.Wait()         // returns that it was killed
	}()
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	expect := func(word string) {
		t.Helper()
		select {
		case line := <-lines:
			if !strings.HasPrefix(line, word) {
				t.Fatalf("want %q of the waiter, got %q", word, line)
			}
		case <-time.After(time.Minute):
			t.Fatalf("want %q of the waiter, got nothing", word)
		}
	}
	expect("ready")
	fmt.Fprintf(in, "lock stopped-waiter %v\n", ttl)
	expect("waits")
	if err := worker.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(ttl + ttl/2) // how long the process is stopped
	if err := worker.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	// The waiter must not fail while it waits again.
	select {
	case line := <-lines:
		t.Fatalf("the waiter that was stopped: %q", line)
	case <-time.After(ttl):
	}
	if err := held.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect("granted")
}
