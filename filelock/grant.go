package filelock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock/backend"
)

var _ backend.Grant = (*ticket)(nil)

// released is written before each release and read after each grant, so that in the Go
// memory model a release happens before the next grant. The file system orders them, but
// neither the memory model nor the race detector knows it.
var released atomic.Uint64

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
	if err := t.remove(); err != nil {
		return backend.NotExecuted(err)
	}
	t.end()
	return nil
}

// hold makes the ticket a grant and watches its file.
func (t *ticket) hold() {
	released.Load()
	t.mu.Lock()
	t.holds = true
	if t.file != nil && t.onLost != nil && t.unwatch == nil {
		t.unwatch, _ = t.b.watch(ticketPath(t.path, t.number), t.check)
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
