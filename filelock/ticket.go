package filelock

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
)

// numberLen is the length of a ticket's file name: a number in decimal, padded.
const numberLen = 20

// record is the content of a ticket file, for those who inspect.
type record struct {
	Name     string    `json:"name"` // escaped, as in directory names but never hashed
	Owner    string    `json:"owner"`
	Metadata string    `json:"metadata,omitempty"`
	PID      int       `json:"pid"`
	Host     string    `json:"host,omitempty"`
	Since    time.Time `json:"since"`
}

// maxRecord bounds what is read of a ticket that somebody else may have made.
const maxRecord = 16 << 10

type ticketID struct{ dir, owner string }

// ticket is an attempt of this Backend that waits or holds. Its file is open and
// flock'ed until the ticket is given up.
type ticket struct {
	b      *Backend
	dir    string
	number uint64
	owner  string
	onLost func(error)
	// abandoned is closed by Abandon; a wait that it ends must not queue up again.
	abandoned chan struct{}

	mu      sync.Mutex // serializes the end with checks
	file    *os.File   // nil once the ticket has ended
	info    fs.FileInfo
	holds   bool   // false while it waits
	unwatch func() // ends the watch over our own file, nil if there is none
}

func ticketPath(dir string, number uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%0*d", numberLen, number))
}

// numbers returns those of the tickets in a directory, dead or alive, in order.
func numbers(dir string) ([]uint64, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var ns []uint64
	for _, name := range names {
		if len(name) != numberLen {
			continue
		}
		if n, err := strconv.ParseUint(name, 10, 64); err == nil {
			ns = append(ns, n)
		}
	}
	slices.Sort(ns)
	return ns, nil
}

// alive probes a ticket: whether its maker still holds the flock. An error is no
// answer, and never to be taken for a death.
func alive(path string) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	free, err := tryFlock(f, shared)
	if err != nil {
		return false, fmt.Errorf("flock %s: %w", path, err)
	}
	if free {
		unflock(f)
	}
	return !free, nil
}

// lowest returns the position of the first live ticket, len(ns) if there is none.
func lowest(dir string, ns []uint64) (int, error) {
	for i, n := range ns {
		if ok, err := alive(ticketPath(dir, n)); ok || err != nil {
			return i, err
		}
	}
	return len(ns), nil
}

// sweep removes the dead tickets before the first live one, and returns the rest.
// The dead that stand between the living are swept when their turn comes.
func (g *guard) sweep(ns []uint64) ([]uint64, error) {
	live, err := lowest(g.dir, ns)
	for _, n := range ns[:live] {
		if rerr := remove(ticketPath(g.dir, n)); err == nil {
			err = rerr
		}
	}
	return ns[live:], err
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// issue makes the ticket of an attempt. The file gets its name when it is complete
// and flock'ed, so whoever sees a ticket sees a live one until its maker dies. After
// an error nothing of it is left.
func (g *guard) issue(req *backend.Request, highest uint64) (t *ticket, err error) {
	number, err := g.draw(highest)
	if err != nil {
		return nil, err
	}
	content, err := json.Marshal(record{
		Name: escape(req.Key), Owner: req.Owner, Metadata: req.Metadata,
		PID: os.Getpid(), Host: g.b.host, Since: time.Now().UTC().Round(time.Millisecond),
	})
	if err != nil {
		return nil, err
	}
	path := filepath.Join(g.dir, newFile)
	f, err := g.b.create(path, os.O_RDWR|os.O_EXCL)
	if errors.Is(err, fs.ErrExist) { // of a process that died right here
		if err = remove(path); err == nil {
			f, err = g.b.create(path, os.O_RDWR|os.O_EXCL)
		}
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = remove(path)
			f.Close()
		}
	}()
	if _, err := f.Write(append(content, '\n')); err != nil {
		return nil, err
	}
	if ours, err := tryFlock(f, exclusive); err != nil {
		return nil, fmt.Errorf("flock %s: %w", path, err)
	} else if !ours {
		return nil, fmt.Errorf("flock %s: somebody else has locked a file in the making", path)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := os.Rename(path, ticketPath(g.dir, number)); err != nil {
		return nil, err
	}
	t = &ticket{
		b: g.b, dir: g.dir, number: number, owner: req.Owner, onLost: req.OnLost,
		abandoned: make(chan struct{}), file: f, info: info,
	}
	g.b.mu.Lock()
	g.b.tickets[ticketID{t.dir, t.owner}] = t
	g.b.mu.Unlock()
	return t, nil
}

// read returns what a ticket says of its owner. Of a foreign or damaged one it
// makes up what is needed, and says so.
func read(dir string, number uint64) (r record, foreign bool) {
	path := ticketPath(dir, number)
	if f, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0); err == nil {
		defer f.Close()
		content, err := io.ReadAll(io.LimitReader(f, maxRecord))
		if err == nil && json.Unmarshal(content, &r) == nil && r.Owner != "" {
			return r, false
		}
	}
	return record{Owner: filepath.Base(path)}, true
}

// party is the one whose ticket says r.
func (r record) party() backend.Party {
	p := backend.Party{Owner: r.Owner, Metadata: r.Metadata}
	if !r.Since.IsZero() {
		p.Age = max(0, time.Since(r.Since))
	}
	return p
}

func holder(dir string, number uint64) backend.Holder {
	r, foreign := read(dir, number)
	return backend.Holder{Party: r.party(), Token: number, Foreign: foreign}
}
