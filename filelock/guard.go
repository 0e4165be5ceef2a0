package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/interlock-go/lock/backend"
)

// guardTimeout is how long an attempt waits for the guard. A critical section takes microseconds, so after that time
// a process is probably stopped in its own.
var guardTimeout = 10 * time.Second

// guard is the critical section of one lock.
type guard struct {
	*directory
	b        *Backend
	replaced bool // the directory is that of the lock no more
}

// enter takes the guard of a lock's directory. If create is false and the directory does not exist, it returns nil, nil:
// the lock is free and has no waiters.
func (b *Backend) enter(ctx context.Context, path string, create bool) (*guard, error) {
	limited, cancel := context.WithTimeout(ctx, guardTimeout)
	defer cancel()
	g, err := b.tryEnter(limited, path, create)
	for errors.Is(err, errReplaced) {
		if err = b.pause(limited, time.Millisecond); err == nil {
			g, err = b.tryEnter(limited, path, create)
		}
	}
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%s was locked by other processes for %v: a process may be stopped in its critical section",
			filepath.Join(path, fenceFile), guardTimeout)
	}
	return g, err
}

func (b *Backend) tryEnter(ctx context.Context, path string, create bool) (*guard, error) {
	d, err := b.use(path)
	if errors.Is(err, fs.ErrNotExist) {
		if !create {
			return nil, nil
		}
		if err = b.makeRoot(); err == nil {
			err = b.build(path, true)
		}
		if err == nil {
			d, err = b.use(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = errReplaced // deleted in between
		}
	}
	if err != nil {
		return nil, err
	}
	select { // goroutines of this Backend take turns, so that only processes poll
	case <-d.turn:
	case <-ctx.Done():
		err = ctx.Err()
	case <-b.life.Context().Done():
		err = backend.ErrClosed
	}
	if err != nil {
		b.leave(d, false)
		return nil, err
	}
	g := &guard{directory: d, b: b}
	if err = b.flockFence(ctx, d.fence); err == nil {
		err = d.verify()
	}
	if err != nil {
		g.replaced = errors.Is(err, errReplaced)
		g.exit()
		return nil, err
	}
	return g, nil
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
	case <-ctx.Done():
	case <-b.life.Context().Done():
	}
	return b.going(ctx)
}

// going returns why a long operation must stop, if it must.
func (b *Backend) going(ctx context.Context) error {
	if b.life.Context().Err() != nil {
		return backend.ErrClosed
	}
	return ctx.Err()
}

// exit leaves the critical section.
func (g *guard) exit() {
	unflock(g.fence)
	g.turn <- struct{}{}
	g.b.leave(g.directory, g.replaced)
}
