package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock/backend"
)

var pid = os.Getpid()

// numberLen is the length of a ticket's file name: a number in decimal, padded.
const numberLen = 20

type ticketID struct{ path, owner string }

// ticket is an attempt of this Backend that waits or holds. Its file is open and locked by flock until the ticket
// ends.
type ticket struct {
	b      *Backend
	path   string // of the lock's directory
	number uint64
	onLost func(error)
	// abandoned ends by abandon: the wait must not queue again.
	abandoned context.Context
	abandon   func()
	holds     atomic.Bool // false while it waits

	mu      sync.Mutex // serializes the end with checks
	file    *os.File   // nil once the ticket has ended
	passed  *os.File   // the same, for programs that this process starts; nil: they do not inherit it
	info    fs.FileInfo
	record  record      // constant once the ticket holds, but for a downgrade
	size    int64       // of its first line
	unwatch func()      // ends the watch of the ticket's own file, nil if there is none
	later   *time.Timer // begins that watch
}

func ticketName(number uint64) string {
	s := strconv.FormatUint(number, 10)
	return strings.Repeat("0", numberLen-len(s)) + s
}

func ticketPath(dir string, number uint64) string { return filepath.Join(dir, ticketName(number)) }

func (t *ticket) id() ticketID { return ticketID{t.path, t.record.Owner} }

// issue creates the ticket of an attempt. Until it is locked it looks like a dead one. That harms nothing: the dead
// are removed within the guard, or by the owner of a later ticket. After an error nothing of it is left.
func (g *guard) issue(req *backend.Request, highest uint64, p place) (*ticket, error) {
	t := &ticket{b: g.b, path: g.path, number: highest, onLost: req.OnLost, record: record{
		Share: req.Share, Slots: p.slots, Name: escape(req.Key), Owner: req.Owner, Metadata: req.Metadata,
		PID: pid, Host: g.b.host, Since: time.Now().UTC().Round(time.Millisecond),
	}}
	if req.Share == backend.Reader {
		t.record.Behind = p.before
	}
	t.abandoned, t.abandon = context.WithCancel(context.Background())
	line, err := t.record.line()
	for tries, ours := 0, false; err == nil && !ours; tries++ {
		if ours, err = g.make(t, line, p.alone); err == nil && !ours && tries == maxTries {
			err = fmt.Errorf("in %s: other programs lock each new file", g.path)
		}
	}
	if err != nil {
		return nil, err
	}
	g.b.mu.Lock()
	g.b.tickets[t.id()] = t
	g.b.mu.Unlock()
	return t, nil
}

// maxTries is how many tickets an attempt makes at most, because others have locked them: Inspect, while it probes
// one.
const maxTries = 100

// make creates the file of a ticket, with the next number. It returns false, and leaves nothing, if another process
// has locked it.
func (g *guard) make(t *ticket, line []byte, alone bool) (ours bool, err error) {
	if t.number, err = g.draw(t.number, alone); err != nil {
		return false, err
	}
	name := ticketName(t.number)
	if t.file, t.info, err = g.create(name, os.O_RDWR|os.O_EXCL); err != nil {
		return false, err
	}
	n, err := t.file.Write(line) // before the flock: what is live is complete
	t.size = int64(n)
	if err == nil {
		ours, err = tryFlock(t.file, exclusive)
	}
	if ours && g.b.inherit {
		t.passed, err = inheritable(t.file)
	}
	if err != nil || !ours {
		_ = g.remove(name)
		t.close()
	}
	return ours, err
}

// ticket returns the live ticket of an attempt, or nil.
func (b *Backend) ticket(id ticketID) *ticket {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tickets[id]
}

// change replaces the record of a ticket that was verified, and wakes those that watch its file, by a change of its
// attributes. After an error the record is as before. The caller holds t.mu.
func (t *ticket) change(r record) error {
	line, err := r.line()
	if err == nil {
		_, err = t.file.WriteAt(line, t.size)
	}
	if err != nil {
		return err
	}
	t.record = r
	_ = t.file.Chmod(t.info.Mode().Perm()) // without it they notice the change at their next look
	return nil
}

// verify checks that the ticket's file is still in its place. If it is not, the ticket has ended, and verify closes
// the file. The caller holds t.mu.
func (t *ticket) verify() error {
	if t.file == nil {
		return backend.ErrLost
	}
	info, err := os.Lstat(t.file.Name())
	switch {
	case err == nil && os.SameFile(info, t.info):
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return backend.NotExecuted(err)
	}
	t.end()
	return fmt.Errorf("%w: its ticket was removed", backend.ErrLost)
}

// verified calls f while the ticket is in its place.
func (t *ticket) verified(f func() error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.verify(); err != nil {
		return err
	}
	return f()
}

// remove deletes the file of a ticket that was verified. The successor may run as soon as the name is gone.
func (t *ticket) remove() error {
	released.Add(1)
	d, err := t.b.use(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer t.b.leave(d, false)
	return d.remove(filepath.Base(t.file.Name()))
}

// end closes the file of a ticket that has left its place. The caller holds t.mu. The flock is dropped explicitly: a
// child that is being forked now shares the file until it executes its program.
func (t *ticket) end() {
	unflock(t.file)
	t.close()
	if t.later != nil {
		t.later.Stop()
	}
	if t.unwatch != nil {
		t.unwatch()
	}
	t.b.mu.Lock()
	if t.b.tickets[t.id()] == t {
		delete(t.b.tickets, t.id())
	}
	t.b.mu.Unlock()
}

func (t *ticket) close() {
	t.file.Close()
	if t.passed != nil {
		t.passed.Close()
	}
	t.file = nil
}

// discard ends the ticket. If its file cannot be removed, the ticket is dead without its flock, and the next request
// removes it.
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
