package cmdtest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Tail collects the output of processes.
type Tail struct {
	t       *testing.T
	mu      sync.Mutex // guards the fields below
	buf     bytes.Buffer
	changed chan struct{} // closed and replaced when there is more
	ended   bool
}

// NewTail reads r until it ends.
func NewTail(t *testing.T, r io.ReadCloser) *Tail {
	o := &Tail{t: t, changed: make(chan struct{})}
	go o.read(r)
	return o
}

func newPipe(t *testing.T) (*Tail, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return NewTail(t, r), w
}

func (o *Tail) read(r io.ReadCloser) {
	defer r.Close()
	chunk := make([]byte, 4096)
	for {
		n, err := r.Read(chunk)
		o.mu.Lock()
		o.buf.Write(chunk[:n])
		o.ended = err != nil
		close(o.changed)
		o.changed = make(chan struct{})
		o.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Text returns the output so far.
func (o *Tail) Text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// until waits for a condition of the output.
func (o *Tail) until(name string, ok func(text string, ended bool) bool) {
	o.t.Helper()
	deadline := time.After(Timeout)
	for {
		o.mu.Lock()
		text, ended, changed := o.buf.String(), o.ended, o.changed
		o.mu.Unlock()
		if ok(text, ended) {
			return
		}
		if ended {
			o.t.Fatalf("ended without %s: %q", name, text)
		}
		select {
		case <-changed:
		case <-deadline:
			o.t.Fatalf("no %s in %q", name, text)
		}
	}
}

// Contains waits until the output contains s.
func (o *Tail) Contains(s string) {
	o.t.Helper()
	o.until(strconv.Quote(s), func(text string, _ bool) bool { return strings.Contains(text, s) })
}

// Times waits until the output contains s n times.
func (o *Tail) Times(s string, n int) {
	o.t.Helper()
	o.until(fmt.Sprintf("%d times %q", n, s), func(text string, _ bool) bool { return strings.Count(text, s) >= n })
}

// All waits until all processes that can write have ended, and returns the output.
func (o *Tail) All() string {
	o.t.Helper()
	o.until("end", func(_ string, ended bool) bool { return ended })
	return o.Text()
}
