package filelock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
)

const (
	floorFile = ".floor"               // in the root; no lock's directory begins with a dot
	busyLimit = 100 * time.Millisecond // for the guard of a name that seems unused
)

// WithRetention sets for how long the directory of a name is kept after its last grant. The
// default is 24 h, the least a minute; 0 keeps all directories.
func WithRetention(d time.Duration) Option { return func(b *Backend) { b.retention = d } }

// removeUnused removes the directories of unused names from time to time, until Close. Of
// all processes one at a time does so, about every quarter of the retention.
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

// sweep removes the directories of names that had no grant for a time. Before that it raises
// the floor, from which new counters begin, to their counters. A flock on the root excludes
// other sweeps.
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
		if name == floorFile || !old(path, name, unused) {
			continue
		}
		if d, err := b.open(path); err == nil {
			floor = max(floor, d.counter().last)
			d.Close()
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

// old reports whether a directory has not been used for a time: its counter was not written.
// One that a process makes now has another name, and may have no counter.
func old(path, name string, unused time.Duration) bool {
	info, err := os.Lstat(filepath.Join(path, fenceFile))
	if strings.HasPrefix(name, newPrefix) {
		info, err = os.Lstat(path)
		unused = max(unused, backend.MinRetention)
	}
	return err == nil && time.Since(info.ModTime()) > unused
}

// removeName removes a directory that is still unused. An attempt that has it open finds
// that it was replaced, as errReplaced says, and makes another one.
func (b *Backend) removeName(path string, floor uint64, unused time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), busyLimit)
	defer cancel()
	g, err := b.enter(ctx, path, false)
	if g == nil || err != nil {
		return
	}
	defer g.exit()
	ns, err := g.dir.numbers()
	name := filepath.Base(path)
	if err != nil || g.dir.counter().last > floor || !strings.HasPrefix(name, newPrefix) && !old(path, name, unused) {
		return
	}
	if live, err := g.dir.lastAlive(ns); live != 0 || err != nil {
		return
	}
	gone := temporary(b.root)
	if os.Rename(path, gone) != nil {
		return // of another user, for example
	}
	for _, name := range []string{newFile, fenceFile} {
		_ = g.dir.remove(name)
	}
	_ = os.Remove(gone) // if an attempt has just made a file in it, the next sweep removes it
}

// floor returns the number that new counters begin above.
func (b *Backend) floor() uint64 {
	d, err := b.openRoot()
	if err != nil {
		return 0
	}
	defer d.Close()
	f, err := d.read(floorFile)
	if err != nil {
		return 0
	}
	defer f.Close()
	return readCounter(f).last
}

// setFloor replaces the file, so that a reader sees all of a number.
func (b *Backend) setFloor(floor uint64) error {
	d, err := b.openRoot()
	if err != nil {
		return err
	}
	defer d.Close()
	temp := newPrefix + strconv.FormatUint(rand.Uint64(), 16)
	f, err := d.create(temp, os.O_WRONLY|os.O_EXCL)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, counterForm, numberLen, floor)
	if err = errors.Join(err, f.Close()); err == nil {
		err = d.Rename(temp, floorFile)
	}
	if err != nil {
		_ = d.remove(temp)
	}
	return err
}

func (b *Backend) openRoot() (*directory, error) {
	root, err := os.OpenRoot(b.root)
	return &directory{root, b.mode}, err
}
