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

// record is the content of a ticket file, for Inspect.
type record struct {
	Name     string    `json:"name"` // escaped, as in directory names but never hashed
	Owner    string    `json:"owner"`
	Metadata string    `json:"metadata,omitempty"`
	PID      int       `json:"pid"`
	Host     string    `json:"host,omitempty"`
	Since    time.Time `json:"since"`
}

// maxRecord bounds the size in bytes of a ticket that is read: another program may have made it.
const maxRecord = 16 << 10

type ticketID struct{ dir, owner string }

// ticket is an attempt of this Backend that waits or holds. Its file is open and
// locked by flock until the ticket ends.
type ticket struct {
	b      *Backend
	dir    string
	number uint64
	owner  string
	onLost func(error)
	// abandoned is closed by Abandon; its wait must not queue again.
	abandoned chan struct{}

	mu      sync.Mutex // serializes the end with checks
	file    *os.File   // nil once the ticket has ended
	info    fs.FileInfo
	holds   bool   // false while it waits
	unwatch func() // ends the watch of the ticket's own file, nil if there is none
}

func ticketPath(dir string, number uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%0*d", numberLen, number))
}

// numbers returns the numbers of all tickets in a directory, live and dead, in order.
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

// alive reports whether the owner of a ticket still has its flock. An error does not
// mean that the ticket is dead.
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
// Dead tickets between live ones are removed later.
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

// issue creates the ticket of an attempt. The file gets its name when it is complete and
// locked, so a ticket is live from the moment that it is visible. After an error nothing
// of it is left.
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
	if errors.Is(err, fs.ErrExist) { // of a process that died at this point
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
		return nil, fmt.Errorf("flock %s: another program has locked a new file", path)
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

// read returns the record of a ticket. If another program made the ticket, or it is
// damaged, read returns foreign=true and the file name as the owner.
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

// contender returns the contender of a ticket.
func (r record) contender() backend.Contender {
	p := backend.Contender{Owner: r.Owner, Metadata: r.Metadata}
	if !r.Since.IsZero() {
		p.Age = max(0, time.Since(r.Since))
	}
	return p
}

func holder(dir string, number uint64) backend.Holder {
	r, foreign := read(dir, number)
	return backend.Holder{Contender: r.contender(), Token: number, Foreign: foreign}
}
