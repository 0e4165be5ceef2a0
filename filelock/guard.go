package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
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
	path  string // of the lock's directory
	dir   *directory
	fence *os.File
	leave func() // ends the local turn
}

// enter takes the guard of a lock's directory. If create is false and the directory does
// not exist, it returns nil, nil: the lock is free and has no waiters.
func (b *Backend) enter(ctx context.Context, path string, create bool) (*guard, error) {
	limited, cancel := context.WithTimeout(ctx, guardTimeout)
	defer cancel()
	g, err := b.enterUntil(limited, path, create)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("%s was locked by other processes for %v: a process may be stopped in its critical section",
			filepath.Join(path, fenceFile), guardTimeout)
	}
	return g, err
}

func (b *Backend) enterUntil(ctx context.Context, path string, create bool) (*guard, error) {
	// Goroutines of this Backend take turns without polling.
	leave, err := b.local.take(ctx, b.done, path)
	if err != nil {
		return nil, err
	}
	for {
		g, err := b.tryEnter(ctx, path, create)
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

func (b *Backend) tryEnter(ctx context.Context, path string, create bool) (*guard, error) {
	d, err := b.open(path)
	if errors.Is(err, fs.ErrNotExist) {
		if !create {
			return nil, nil
		}
		if err = b.makeRoot(); err == nil {
			err = b.build(path, fenceFile)
		}
		if err == nil {
			d, err = b.open(path)
		}
	}
	var f *os.File
	if err == nil {
		if f, err = d.create(fenceFile, os.O_RDWR); err != nil {
			d.Close()
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errReplaced // deleted in between
	}
	if err != nil {
		return nil, err
	}
	g := &guard{b: b, path: path, dir: d, fence: f, leave: func() {}}
	if err = b.flockFence(ctx, f); err == nil {
		err = g.verify()
	}
	if err != nil {
		g.exit()
		return nil, err
	}
	return g, nil
}

// verify checks that the locked file is the one that other processes lock.
func (g *guard) verify() error {
	mine, err := g.fence.Stat()
	if err != nil {
		return err
	}
	if linksOf(mine) > 1 {
		return fmt.Errorf("%s has another hard link: it is not a file of this library", g.fence.Name())
	}
	now, err := os.Lstat(g.fence.Name())
	if err == nil && !os.SameFile(mine, now) || errors.Is(err, fs.ErrNotExist) {
		return errReplaced
	}
	return err
}

// flockFence polls: a blocking flock could not be given up when ctx ends.
func (b *Backend) flockFence(ctx context.Context, f *os.File) error {
	const least, most = 50 * time.Microsecond, 4 * time.Millisecond
	for pause := least; ; pause = min(2*pause, most) {
		if free, err := tryFlock(f, exclusive); err != nil || free {
			return err
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
		return ctx.Err()
	case <-b.done:
		return backend.ErrClosed
	}
}

// exit leaves the critical section. The flock is dropped explicitly, as in ticket.end.
func (g *guard) exit() {
	unflock(g.fence)
	g.fence.Close()
	g.dir.Close()
	g.leave()
}

// turns admits one goroutine of this Backend at a time to each directory, so that only
// processes poll for a guard.
type turns struct {
	mu sync.Mutex
	m  map[string]*turn
}

type turn struct {
	free  chan struct{} // contains a value while no goroutine has the turn
	users int
}

func (l *turns) take(ctx context.Context, done <-chan struct{}, path string) (leave func(), err error) {
	l.mu.Lock()
	t := l.m[path]
	if t == nil {
		t = &turn{free: make(chan struct{}, 1)}
		t.free <- struct{}{}
		l.m[path] = t
	}
	t.users++
	l.mu.Unlock()
	forget := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(l.m, path)
		}
	}
	select {
	case <-t.free:
		return func() { t.free <- struct{}{}; forget() }, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-done:
		err = backend.ErrClosed
	}
	forget()
	return nil, err
}
