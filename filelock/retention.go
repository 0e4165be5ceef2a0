package filelock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
)

const (
	floorFile = ".floor"               // in the root; no lock's directory begins with a dot
	busyLimit = 100 * time.Millisecond // for the guard of a name that seems unused
)

// WithRetention sets for how long the directory of a name is kept after its last grant. The default is 24 h, the
// least a minute; 0 keeps all directories.
func WithRetention(d time.Duration) Option { return func(b *Backend) { b.retention = d } }

// removeUnused removes the directories of unused names from time to time, until Close. Of all processes one at a time
// does so, about every quarter of the retention.
func (b *Backend) removeUnused() {
	// The first one comes soon, since many processes do not run for long.
	for next := rand.N(min(b.retention/4, time.Minute)); b.pause(context.Background(), next) == nil; {
		info, err := os.Lstat(filepath.Join(b.root, floorFile))
		if err != nil || time.Since(info.ModTime()) >= b.retention/4 {
			_ = b.sweep(b.retention) // what is left is for the next one
		}
		next = b.retention/8 + rand.N(b.retention/8)
	}
}

// sweep removes the directories of names that had no grant for a time. Before that it raises the floor, from which
// new counters begin, to their counters. A flock on the root excludes other sweeps.
func (b *Backend) sweep(unused time.Duration) error {
	root, err := os.Open(b.root)
	if err != nil {
		return err
	}
	defer root.Close()
	if free, err := tryFlock(root, exclusive); err != nil || !free {
		return err
	}
	defer unflock(root)
	names, err := root.Readdirnames(-1)
	if err != nil {
		return err
	}
	floor := b.floor()
	var paths []string
	for _, name := range names {
		if err := b.going(context.Background()); err != nil {
			return err
		}
		path := filepath.Join(b.root, name)
		if name == floorFile || !old(path, unused) {
			continue
		}
		if d, err := b.openDirectory(path, true); err == nil {
			floor = max(floor, d.counter().last)
			d.close()
			paths = append(paths, path)
		}
	}
	if err := b.setFloor(floor); err != nil {
		return err
	}
	for _, path := range paths {
		if err := b.going(context.Background()); err != nil {
			return err
		}
		b.removeName(path, floor, unused)
	}
	return nil
}

// old reports whether a directory has not been used for a time: its counter was not written. One that a process makes
// now has another name, and may have no counter.
func old(path string, unused time.Duration) bool {
	info, err := os.Lstat(filepath.Join(path, fenceFile))
	if incomplete(path) {
		info, err = os.Lstat(path)
		unused = max(unused, backend.MinRetention)
	}
	return err == nil && time.Since(info.ModTime()) > unused
}

func incomplete(path string) bool { return strings.HasPrefix(filepath.Base(path), newPrefix) }

// removeName removes a directory that is still unused. An attempt that has it open finds that it was replaced, as
// errReplaced says, and makes another one.
func (b *Backend) removeName(path string, floor uint64, unused time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), busyLimit)
	defer cancel()
	g, err := b.enter(ctx, path, false)
	if g == nil || err != nil {
		return
	}
	defer g.exit()
	ns, err := g.numbers(newTicket)
	if err != nil || g.counter().last > floor || !incomplete(path) && !old(path, unused) {
		return
	}
	if live, err := g.lastAlive(ns); live != 0 || err != nil {
		return
	}
	gone := temporary(b.root)
	if os.Rename(path, gone) != nil {
		return // of another user, for example
	}
	g.replaced = true
	_ = g.remove(fenceFile)
	_ = os.Remove(gone) // if an attempt has just made a file in it, the next sweep removes it
}

// floor returns the number that new counters begin above.
func (b *Backend) floor() uint64 {
	f, err := os.OpenFile(filepath.Join(b.root, floorFile), os.O_RDONLY|nonBlock, 0)
	if err != nil {
		return 0
	}
	defer f.Close()
	return readCounter(f).last
}

// setFloor replaces the file, so that a reader sees all of a number.
func (b *Backend) setFloor(floor uint64) error {
	f, err := os.CreateTemp(b.root, newPrefix+"*")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, counterForm, numberLen, floor)
	err = errors.Join(err, f.Chmod(b.mode.Perm()&0o666), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(b.root, floorFile))
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
