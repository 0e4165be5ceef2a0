package filelock

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/interlock-go/lock/backend"
)

// Inspect implements backend.Inspector. It needs no guard: a ticket is live from the
// moment that it is visible.
func (b *Backend) Inspect(ctx context.Context, key string) (backend.Info, error) {
	if err := b.begin(ctx); err != nil {
		return backend.Info{}, err
	}
	defer b.active.Done()
	dir, err := b.Path(key)
	if err != nil {
		return backend.Info{}, err
	}
	info, _, err := inspect(dir)
	info.Name = key
	return info, err
}

// inspect also returns the holder's record, for the name.
func inspect(dir string) (info backend.Info, r record, err error) {
	ns, err := numbers(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return info, r, err
	}
	for _, n := range ns {
		ok, err := alive(ticketPath(dir, n))
		if err != nil {
			return info, r, err
		}
		if !ok {
			continue
		}
		rec, foreign := read(dir, n)
		c := rec.contender()
		if info.Holder == nil {
			r = rec
			info.Holder = &backend.Holder{Contender: c, Token: n, Foreign: foreign}
		} else {
			info.Waiters = append(info.Waiters, c)
		}
	}
	return info, r, nil
}

// List implements backend.Lister.
func (b *Backend) List(ctx context.Context, yield func(backend.Info) bool) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	defer b.active.Done()
	entries, err := os.ReadDir(b.root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := b.going(ctx); err != nil {
			return err
		}
		name, exact, ours := nameOf(b.prefix, e.Name())
		if !ours || !e.IsDir() {
			continue
		}
		info, r, err := inspect(filepath.Join(b.root, e.Name()))
		if err != nil {
			return err
		}
		if info.Holder == nil {
			continue
		}
		if !exact {
			var ok bool
			if name, ok = unescape(r.Name); !ok || dirName(b.prefix, name) != e.Name() {
				continue // not a lock of this library
			}
		}
		info.Name = name
		if !yield(info) {
			return nil
		}
	}
	return nil
}

// going returns why a long operation must stop, if it must.
func (b *Backend) going(ctx context.Context) error {
	select {
	case <-b.done:
		return backend.ErrClosed
	default:
		return ctx.Err()
	}
}

// Break implements backend.Breaker.
func (b *Backend) Break(ctx context.Context, key, owner string) (*backend.Holder, error) {
	if err := b.begin(ctx); err != nil {
		return nil, err
	}
	defer b.active.Done()
	dir, err := b.Path(key)
	if err != nil {
		return nil, err
	}
	g, err := b.enter(ctx, dir, false)
	if g == nil {
		return nil, err
	}
	defer g.exit()
	ns, err := numbers(dir)
	if err == nil {
		ns, err = g.sweep(ns)
	}
	if err != nil || len(ns) == 0 {
		return nil, err
	}
	h := holder(dir, ns[0])
	if owner != "" && owner != h.Owner {
		return nil, &backend.LockedError{Holder: h}
	}
	if err := remove(ticketPath(dir, ns[0])); err != nil {
		return nil, err
	}
	return &h, nil
}
