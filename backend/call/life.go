package call

import (
	"context"
	"sync"
	"time"
)

// idleWorker is how long a goroutine waits for its next request.
const idleWorker = time.Second

// Life is the life of a backend: its requests and goroutines, which Close waits for. Make one with [NewLife]. Its methods
// may be called concurrently.
type Life struct {
	ctx  context.Context
	end  context.CancelFunc
	jobs chan job  // to an idle worker
	ends sync.Pool // of *ending

	mu    sync.Mutex // guards over, and adding to tasks
	over  bool
	tasks sync.WaitGroup
}

// job is what a worker runs.
type job interface{ run() }

type function func()

func (f function) run() { f() }

// NewLife returns a Life that has begun.
func NewLife() *Life {
	l := &Life{jobs: make(chan job)}
	l.ctx, l.end = context.WithCancel(context.Background())
	l.ends.New = func() any { return newEnding() }
	return l
}

// Context ends with Stop.
func (l *Life) Context() context.Context { return l.ctx }

// Enter registers a task that Close waits for. The task calls Leave at its end. Enter returns false after Stop.
func (l *Life) Enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false
	}
	l.tasks.Add(1)
	return true
}

// Leave ends a task.
func (l *Life) Leave() { l.tasks.Done() }

// Go runs f as a task in a goroutine. It returns false after Stop.
func (l *Life) Go(f func()) bool {
	if !l.Enter() {
		return false
	}
	l.dispatch(function(f))
	return true
}

// also runs j as a task, for one that has not ended. That may be after Stop.
func (l *Life) also(j job) {
	l.tasks.Add(1)
	l.dispatch(j)
}

// ending returns what the end of a request is awaited with.
func (l *Life) ending() *ending {
	e := l.ends.Get().(*ending)
	e.timer.Reset(firstWait)
	return e
}

// dispatch runs the task j on a worker: an idle one, whose stack has grown already, or a new one. With a new goroutine for
// each task, Lock and Unlock of a free lock of Redis take 24 % more processor time of the client.
func (l *Life) dispatch(j job) {
	select {
	case l.jobs <- j:
	default:
		go l.work(j)
	}
}

func (l *Life) work(j job) {
	idle := time.NewTimer(idleWorker)
	defer idle.Stop()
	for {
		j.run()
		l.Leave()
		idle.Reset(idleWorker)
		select {
		case j = <-l.jobs:
		case <-idle.C:
			return
		case <-l.ctx.Done():
			return
		}
	}
}

// Stop ends Context. No task begins after it.
func (l *Life) Stop() {
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.end()
}

// Close is Stop, and waits for the tasks until ctx ends.
func (l *Life) Close(ctx context.Context) error {
	l.Stop()
	done := make(chan struct{})
	go func() { l.tasks.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
