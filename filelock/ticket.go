package filelock

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
)

// numberLen is the length of a ticket's file name: a number in decimal, padded.
const numberLen = 20

type ticketID struct{ path, owner string }

// ticket is an attempt of this Backend that waits or holds. Its file is open and
// locked by flock until the ticket ends.
type ticket struct {
	b      *Backend
	path   string // of the lock's directory
	number uint64
	owner  string
	onLost func(error)
	// abandoned is closed by Abandon; its wait must not queue again.
	abandoned chan struct{}

	mu      sync.Mutex // serializes the end with checks
	file    *os.File   // nil once the ticket has ended
	passed  *os.File   // the same, for programs that this process starts; nil: they do not inherit it
	info    fs.FileInfo
	share   backend.Share
	slots   []int  // of permits; constant once the ticket holds them
	holds   bool   // false while it waits
	unwatch func() // ends the watch of the ticket's own file, nil if there is none
}

func ticketName(number uint64) string { return fmt.Sprintf("%0*d", numberLen, number) }

func ticketPath(dir string, number uint64) string { return filepath.Join(dir, ticketName(number)) }

// living returns the number of a ticket if it is alive, else 0.
func (d *directory) living(n uint64) (uint64, error) {
	if n == 0 {
		return 0, nil
	}
	ok, err := d.alive(n)
	if !ok {
		n = 0
	}
	return n, err
}

// firstAlive returns the first live ticket, 0 if there is none.
func (d *directory) firstAlive(ns []uint64) (uint64, error) {
	for _, n := range ns {
		if ok, err := d.alive(n); ok || err != nil {
			return n, err
		}
	}
	return 0, nil
}

// lastAlive returns the last live ticket, 0 if there is none, and removes the dead ones
// behind it. The caller has the guard, or a live ticket above all of ns, so that no number
// of ns can be drawn again.
func (d *directory) lastAlive(ns []uint64) (uint64, error) {
	for _, n := range slices.Backward(ns) {
		if ok, err := d.alive(n); ok || err != nil {
			return n, err
		}
		_ = d.remove(ticketName(n)) // else the next request tries
	}
	return 0, nil
}

// issue creates the ticket of an attempt. The file gets its name when it is complete and
// locked, so a ticket is live from the moment that it is visible. After an error nothing
// of it is left. If alone is set, no ticket is alive.
func (g *guard) issue(req *backend.Request, highest uint64, alone bool, p place) (t *ticket, err error) {
	number, err := g.draw(highest, alone, !req.Share.Exclusive())
	if err != nil {
		return nil, err
	}
	r := record{
		Name: escape(req.Key), Owner: req.Owner, Metadata: req.Metadata,
		PID: os.Getpid(), Host: g.b.host, Since: time.Now().UTC().Round(time.Millisecond),
	}
	r.setShare(req.Share, p)
	content, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if err := g.dir.remove(newFile); err != nil { // of a process that died at this point
		return nil, err
	}
	f, err := g.dir.create(newFile, os.O_RDWR|os.O_EXCL)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = g.dir.remove(newFile)
			f.Close()
		}
	}()
	if _, err := f.Write(append(content, '\n')); err != nil {
		return nil, err
	}
	if ours, err := tryFlock(f, exclusive); err != nil {
		return nil, err
	} else if !ours {
		return nil, fmt.Errorf("flock %s: another program has locked a new file", f.Name())
	}
	var passed *os.File
	if g.b.inherit {
		if passed, err = inheritable(f); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				passed.Close()
			}
		}()
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := g.dir.Rename(newFile, ticketName(number)); err != nil {
		return nil, fmt.Errorf("in %s: %w", g.path, err)
	}
	t = &ticket{
		b: g.b, path: g.path, number: number, owner: req.Owner, onLost: req.OnLost,
		abandoned: make(chan struct{}), file: f, info: info, share: req.Share, slots: p.slots,
		passed: passed,
	}
	g.b.mu.Lock()
	g.b.tickets[ticketID{t.path, t.owner}] = t
	g.b.mu.Unlock()
	return t, nil
}

// verify checks that the ticket's file is still in its place. If it is not, the ticket has
// ended, and verify closes the file. The caller holds t.mu.
func (t *ticket) verify() error {
	if t.file == nil {
		return backend.ErrLost
	}
	info, err := os.Lstat(ticketPath(t.path, t.number))
	switch {
	case err == nil && os.SameFile(info, t.info):
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return backend.NotExecuted(err)
	}
	t.end()
	return fmt.Errorf("%w: its ticket was removed", backend.ErrLost)
}

// remove deletes the file of a ticket that was verified. The successor may run as soon
// as the name is gone.
func (t *ticket) remove() error {
	released.Add(1)
	d, err := t.b.open(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	return d.remove(ticketName(t.number))
}

// end closes the file of a ticket that has left its place. The caller holds t.mu. The
// flock is dropped explicitly: a child that is being forked now shares the file until it
// executes its program.
func (t *ticket) end() {
	unflock(t.file)
	t.file.Close()
	if t.passed != nil {
		t.passed.Close()
	}
	t.file = nil
	if t.unwatch != nil {
		t.unwatch()
	}
	t.b.mu.Lock()
	if id := (ticketID{t.path, t.owner}); t.b.tickets[id] == t {
		delete(t.b.tickets, id)
	}
	t.b.mu.Unlock()
}

// discard ends the ticket. If its file cannot be removed, the ticket is dead without its
// flock, and the next request removes it.
func (t *ticket) discard() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.verify() == nil {
		_ = t.remove()
	}
	if t.file != nil {
		t.end()
	}
}

// abandon ends the ticket and a wait for it.
func (t *ticket) abandon() {
	t.mu.Lock()
	select {
	case <-t.abandoned:
	default:
		close(t.abandoned)
	}
	t.mu.Unlock()
	t.discard()
}
