package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
)

const (
	fenceFile = "fence"
	newFile   = "new" // a ticket that is not complete; only within the guard
)

// guardTimeout is how long an attempt waits for the guard. A critical section takes
// microseconds, so after that time a process is probably stopped in its own.
var guardTimeout = 10 * time.Second

// guard is the critical section of one lock.
type guard struct {
	b     *Backend
	dir   string
	fence *os.File
	leave func() // ends the local turn
}

// enter takes the guard of a lock's directory. If create is false and the directory does
// not exist, it returns nil, nil: the lock is free and has no waiters.
func (b *Backend) enter(ctx context.Context, dir string, create bool) (*guard, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, guardTimeout, &frozenError{filepath.Join(dir, fenceFile)})
	defer cancel()
	// Goroutines of this Backend take turns without polling.
	leave, err := b.local.take(ctx, b.done, dir)
	if err != nil {
		return nil, err
	}
	for {
		g, err := b.tryEnter(ctx, dir, create)
		if errors.Is(err, errReplaced) {
			if err = b.pause(ctx, time.Millisecond); err == nil {
				continue
			}
		}
		if g == nil {
			leave()
			return nil, err
		}
		g.leave = leave
		return g, nil
	}
}

// errReplaced: the file of the guard was deleted or replaced during the wait for it.
var errReplaced = errors.New("fence file replaced")

func (b *Backend) tryEnter(ctx context.Context, dir string, create bool) (*guard, error) {
	path := filepath.Join(dir, fenceFile)
	f, err := b.create(path, os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		if !create {
			return nil, nil
		}
		if err := errors.Join(b.mkdir(b.root), b.mkdir(dir)); err != nil {
			return nil, err
		}
		if f, err = b.create(path, os.O_RDWR); errors.Is(err, fs.ErrNotExist) {
			return nil, errReplaced // deleted in between
		}
	}
	if err != nil {
		return nil, err
	}
	if err := b.flockFence(ctx, f); err != nil {
		f.Close()
		return nil, err
	}
	g := &guard{b: b, dir: dir, fence: f, leave: func() {}}
	mine, err := f.Stat()
	if err != nil {
		g.exit()
		return nil, err
	}
	now, err := os.Lstat(path)
	if err == nil && os.SameFile(mine, now) {
		return g, nil
	}
	g.exit()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return nil, errReplaced
}

// flockFence polls: a blocking flock could not be given up when ctx ends.
func (b *Backend) flockFence(ctx context.Context, f *os.File) error {
	const least, most = 50 * time.Microsecond, 4 * time.Millisecond
	for pause := least; ; pause = min(2*pause, most) {
		free, err := tryFlock(f, exclusive)
		if err != nil {
			return fmt.Errorf("flock %s: %w", f.Name(), err)
		}
		if free {
			return nil
		}
		if err := b.pause(ctx, pause/2+rand.N(pause)); err != nil {
			return err
		}
	}
}

func (b *Backend) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ended(ctx)
	case <-b.done:
		return backend.ErrClosed
	}
}

// frozenError is the error after guardTimeout.
type frozenError struct{ path string }

func (e *frozenError) Error() string {
	return fmt.Sprintf("%s was locked by other processes for %v: a process may be stopped in its critical section", e.path, guardTimeout)
}

// ended is the error of a context that ended while waiting for the guard.
func ended(ctx context.Context) error {
	var frozen *frozenError
	if errors.As(context.Cause(ctx), &frozen) {
		return frozen
	}
	return ctx.Err()
}

// exit leaves the critical section. The flock is dropped explicitly, as in ticket.end.
func (g *guard) exit() {
	unflock(g.fence)
	g.fence.Close()
	g.leave()
}

// draw returns the next number: above the counter, above the tickets in the directory,
// and at least the clock in microseconds.
func (g *guard) draw(highest uint64) (uint64, error) {
	var buf [numberLen + 2]byte
	n, _ := g.fence.ReadAt(buf[:], 0)
	last := highest
	// other content, such as that of a new, empty file, is ignored
	if n == numberLen+1 && buf[numberLen] == '\n' {
		if v, err := strconv.ParseUint(string(buf[:numberLen]), 10, 64); err == nil {
			last = max(last, v)
		}
	}
	if last == math.MaxUint64 {
		return 0, fmt.Errorf("%s: the ticket numbers are exhausted", g.fence.Name())
	}
	next := last + 1
	if now := time.Now().UnixMicro(); now > 0 {
		next = max(next, uint64(now))
	}
	if _, err := g.fence.WriteAt(fmt.Appendf(nil, "%0*d\n", numberLen, next), 0); err != nil {
		return 0, err
	}
	return next, nil
}

// turns admits one goroutine of this process at a time to each directory, so that only
// processes poll for a guard.
type turns struct {
	mu sync.Mutex
	m  map[string]*turn
}

type turn struct {
	free  chan struct{}
	users int
}

func (l *turns) take(ctx context.Context, done <-chan struct{}, dir string) (leave func(), err error) {
	l.mu.Lock()
	t := l.m[dir]
	if t == nil {
		t = &turn{free: make(chan struct{}, 1)}
		t.free <- struct{}{}
		if l.m == nil {
			l.m = map[string]*turn{}
		}
		l.m[dir] = t
	}
	t.users++
	l.mu.Unlock()
	forget := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(l.m, dir)
		}
	}
	select {
	case <-t.free:
		return func() { t.free <- struct{}{}; forget() }, nil
	case <-ctx.Done():
		err = ended(ctx)
	case <-done:
		err = backend.ErrClosed
	}
	forget()
	return nil, err
}
