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

// Until implements backend.Grant: a grant does not expire.
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

// Release implements backend.Grant. It ignores ctx: it does not wait.
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
		return backend.NotExecuted(err)
	}
	t.end()
	return nil
}

// verify checks that the ticket's file is still in its place. If it is not, the ticket has
// ended, and verify closes the file. The caller holds t.mu.
func (t *ticket) verify() error {
	if t.file == nil {
		return backend.ErrLost
	}
	info, err := os.Lstat(ticketPath(t.dir, t.number))
	switch {
	case err == nil && os.SameFile(info, t.info):
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return backend.NotExecuted(err)
	}
	t.end()
	return fmt.Errorf("%w: its ticket was removed", backend.ErrLost)
}

// end closes the file of a ticket that has left its place. The caller holds t.mu. The
// flock is dropped explicitly: a child that is being forked now shares the file until it
// executes its program.
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

// discard ends the ticket. If its file cannot be removed, the ticket is dead without its
// flock, and the next request removes it.
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

// hold makes the ticket a grant and watches its file.
func (t *ticket) hold() {
	t.mu.Lock()
	t.holds = true
	if t.file != nil && t.onLost != nil && t.unwatch == nil {
		t.unwatch, _ = t.b.watch(ticketPath(t.dir, t.number), t.check)
	}
	t.mu.Unlock()
	t.check() // it may have been broken before it was watched
}

// check runs when the ticket's own file has changed. It reports a loss.
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
