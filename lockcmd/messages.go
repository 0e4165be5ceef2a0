package lockcmd

import (
	"os"
	"sync"
	"time"
)

const (
	maxPending   = 256 << 10   // bytes of messages that are not written yet
	flushTimeout = time.Second // at the end of the program
)

// messageQueue writes to a file in a goroutine of its own. Write never blocks, although the
// file may be a terminal that is stopped or a pipe that is not read: a message that does
// not fit into the queue is dropped.
type messageQueue struct {
	file  *os.File
	begin sync.Once
	more  chan struct{} // capacity 1: there is more to write, or the queue is closed
	done  chan struct{} // closed after the last write

	mu      sync.Mutex // guards the fields below
	pending []byte
	closed  bool
}

func newMessageQueue(f *os.File) *messageQueue {
	return &messageQueue{file: f, more: make(chan struct{}, 1), done: make(chan struct{})}
}

// Write implements io.Writer.
func (q *messageQueue) Write(p []byte) (int, error) {
	q.mu.Lock()
	if len(q.pending)+len(p) <= maxPending {
		q.pending = append(q.pending, p...)
	}
	q.mu.Unlock()
	q.wake()
	return len(p), nil
}

func (q *messageQueue) wake() {
	q.begin.Do(func() { go q.run() })
	select {
	case q.more <- struct{}{}:
	default:
	}
}

func (q *messageQueue) run() {
	defer close(q.done)
	for range q.more {
		q.mu.Lock()
		text, closed := q.pending, q.closed
		q.pending = nil
		q.mu.Unlock()
		if len(text) > 0 {
			_, _ = q.file.Write(text) // there is no other place to report an error
		}
		if closed {
			return
		}
	}
}

// close waits until the messages are written, for flushTimeout at most.
func (q *messageQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.wake()
	select {
	case <-q.done:
	case <-time.After(flushTimeout):
	}
}
