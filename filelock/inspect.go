package filelock

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
)

// Inspect implements backend.Inspector. It needs no guard: a ticket is complete when it is live.
func (b *Backend) Inspect(ctx context.Context, key string) (backend.Info, error) {
	if err := b.begin(ctx); err != nil {
		return backend.Info{}, err
	}
	defer b.life.Leave()
	path, err := b.Path(key)
	if err != nil {
		return backend.Info{}, err
	}
	info, _, err := b.inspect(ctx, path)
	info.Name = key
	return info, err
}

// inspect also returns the name in the first holder's record. A directory that is deleted meanwhile has no live
// ticket.
func (b *Backend) inspect(ctx context.Context, path string) (info backend.Info, name string, err error) {
	d, err := b.openDirectory(path, false)
	for errors.Is(err, errReplaced) {
		if err = b.pause(ctx, time.Millisecond); err == nil {
			d, err = b.openDirectory(path, false)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return info, "", nil
	}
	if err != nil {
		return info, "", err
	}
	defer d.close()
	ns, err := d.numbers(newTicket)
	if err != nil {
		return info, "", err
	}
	var a backend.Admission
	for _, n := range ns {
		c, alive, err := d.probe(n)
		if errors.Is(err, fs.ErrPermission) && b.pause(ctx, time.Millisecond) == nil {
			c, alive, err = d.probe(n) // it was just made, and had not its mode
		}
		if err != nil {
			return info, "", err
		}
		if !alive {
			continue
		}
		switch holds := a.Next(c.Share); {
		case !holds:
			info.Waiters = append(info.Waiters, c.public())
		case info.Holder == nil:
			h := c.holder()
			info.Holder, name = &h, c.Name
		default:
			info.Others = append(info.Others, c.holder())
		}
	}
	return info, name, nil
}

// List implements backend.Lister.
func (b *Backend) List(ctx context.Context, yield func(backend.Info) bool) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	defer b.life.Leave()
	entries, err := os.ReadDir(b.root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := b.going(ctx); err != nil {
			return err
		}
		rest, ours := strings.CutPrefix(e.Name(), dirPrefix(b.prefix))
		if !ours || !e.IsDir() || strings.HasPrefix(e.Name(), newPrefix) {
			continue
		}
		info, recorded, err := b.inspect(ctx, filepath.Join(b.root, e.Name()))
		if err != nil {
			return err
		}
		if info.Holder == nil {
			continue
		}
		name, ok := unescape(rest)
		if !ok { // hashed
			name, ok = unescape(recorded)
		}
		if !ok || dirName(b.prefix, name) != e.Name() {
			continue // of another prefix, or not a lock of this library
		}
		info.Name = name
		if !yield(info) {
			return nil
		}
	}
	return nil
}

// Break implements backend.Breaker.
func (b *Backend) Break(ctx context.Context, key, owner string) (removed *backend.Holder, err error) {
	if err := b.begin(ctx); err != nil {
		return nil, err
	}
	defer b.life.Leave()
	path, err := b.Path(key)
	if err != nil {
		return nil, err
	}
	g, err := b.enter(ctx, path, false)
	if g == nil {
		return nil, err
	}
	defer g.exit()
	ns, err := g.numbers(newTicket)
	if err != nil {
		return nil, err
	}
	var a backend.Admission
	var first *backend.Holder
	for c, err := range g.live(ns) {
		if err != nil {
			return removed, err
		}
		if !a.Next(c.Share) {
			break
		}
		h := c.holder()
		if first == nil {
			first = &h
		}
		if owner != "" && owner != c.Owner {
			continue
		}
		if err := g.remove(ticketName(c.number)); err != nil {
			return removed, err
		}
		if removed == nil {
			removed = &h
		}
	}
	if removed == nil && first != nil {
		return nil, &backend.LockedError{Holder: *first}
	}
	return removed, nil
}
