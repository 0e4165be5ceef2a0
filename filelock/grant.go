package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/interlock-go/lock/backend"
)

var _ backend.Grant = (*ticket)(nil)

// Token implements backend.Grant.
func (t *ticket) Token() uint64 { return t.number }

// Until implements backend.Grant: a hold does not expire.
func (t *ticket) Until() time.Time { return time.Time{} }

// Renew implements backend.Grant. There is nothing to extend: it verifies.
func (t *ticket) Renew(ctx context.Context, _ time.Duration) error {
	if err := t.b.begin(ctx); err != nil {
		return err
	}
	defer t.b.active.Done()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.verify()
}

// Release implements backend.Grant. It does not look at ctx: it is over before a
// context could matter.
func (t *ticket) Release(context.Context) error {
	if err := t.b.begin(context.Background()); err != nil {
		return err
	}
	defer t.b.active.Done()
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.verify(); err != nil {
		return err
	}
	// The successor may run as soon as the name is gone.
	if err := remove(ticketPath(t.dir, t.number)); err != nil {
		return err
	}
	t.end()
	return nil
}

// verify makes sure that the ticket's file is still in its place; t.mu is held. A
// ticket that is not has ended: its file is closed.
func (t *ticket) verify() error {
	if t.file == nil {
		return backend.ErrLost
	}
	info, err := os.Lstat(ticketPath(t.dir, t.number))
	switch {
	case err == nil && os.SameFile(info, t.info):
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err // no answer
	}
	t.end()
	return fmt.Errorf("%w: its ticket was removed", backend.ErrLost)
}

// end closes the file of a ticket that has left its place; t.mu is held. The flock
// is dropped explicitly: a child that is being forked at this moment shares the
// file until it executes its program.
func (t *ticket) end() {
	unflock(t.file)
	t.file.Close()
	t.file = nil
	if t.unwatch != nil {
		t.unwatch()
	}
	t.b.mu.Lock()
	if id := (ticketID{t.dir, t.owner}); t.b.tickets[id] == t {
		delete(t.b.tickets, id)
	}
	t.b.mu.Unlock()
}

// discard gives the ticket up, whatever it was. Even if its file cannot be removed
// it ends here: without its flock it is dead, and swept by the next comer.
func (t *ticket) discard() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.verify() == nil {
		_ = remove(ticketPath(t.dir, t.number))
	}
	if t.file != nil {
		t.end()
	}
}

// abandon gives the ticket up and ends a wait for it.
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

// hold makes the ticket a grant and begins to watch over it.
func (t *ticket) hold() {
	t.mu.Lock()
	t.holds = true
	if t.file != nil && t.onLost != nil && t.unwatch == nil {
		t.unwatch, _ = t.b.watch(ticketPath(t.dir, t.number), t.check)
	}
	t.mu.Unlock()
	t.check() // it may have been broken before it was watched
}

// check runs when something happened to our own file.
func (t *ticket) check() {
	t.mu.Lock()
	ended := t.file == nil
	var err error
	if !ended {
		err = t.verify()
	}
	t.mu.Unlock()
	if !ended && t.onLost != nil && errors.Is(err, backend.ErrLost) {
		t.onLost(err)
	}
}
