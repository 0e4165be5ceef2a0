package lock

import "sync"

// once runs a function once. Unlike those of sync.Once, later callers wait for it at a channel, so that a testing/synctest
// bubble sees that they are blocked.
type once struct {
	mu          sync.Mutex // guards the fields below
	begun, over bool
	ended       chan struct{} // made by the first caller that waits
}

func (o *once) do(f func()) {
	o.mu.Lock()
	first := !o.begun
	o.begun = true
	if !first && !o.over && o.ended == nil {
		o.ended = make(chan struct{})
	}
	over, ended := o.over, o.ended
	o.mu.Unlock()
	switch {
	case first:
		defer o.end() // also if an observer panics
		f()
	case !over:
		<-ended
	}
}

func (o *once) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	if o.ended != nil {
		close(o.ended)
	}
}
