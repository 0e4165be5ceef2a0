package filelock

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock/backend"
)

var (
	_ backend.Grant      = (*ticket)(nil)
	_ backend.Downgrader = (*ticket)(nil)
	_ backend.SlotHolder = (*ticket)(nil)
)

// watchAfter is when the watch of a holder's own ticket begins: to make and to end it costs as much as to create and to
// remove the file, and most locks are held for less time.
const watchAfter = 20 * time.Millisecond

// released is written before each release and read after each grant, so that in the Go memory model a release happens
// before the next grant. The file system orders them, but neither the memory model nor the race detector knows it.
var released atomic.Uint64

// Token implements backend.Grant.
func (t *ticket) Token() uint64 { return t.number }

// Slots implements backend.SlotHolder.
func (t *ticket) Slots() []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.record.Slots)
}

// Until implements backend.Grant: a grant does not expire.
func (t *ticket) Until() time.Time { return time.Time{} }

// Renew implements backend.Grant. There is nothing to extend: it verifies.
func (t *ticket) Renew(ctx context.Context, _ time.Duration) error {
	return t.act(ctx, func() error { return nil })
}

// act calls f while the ticket is in its place. It returns ErrLost if it is not.
func (t *ticket) act(ctx context.Context, f func() error) error {
	if err := t.b.begin(ctx); err != nil {
		return err
	}
	defer t.b.life.Leave()
	return t.verified(f)
}

// Release implements backend.Grant. It ignores ctx: it does not wait.
func (t *ticket) Release(context.Context) error {
	return t.act(context.Background(), func() error {
		if err := t.remove(); err != nil {
			return backend.NotExecuted(err)
		}
		t.end()
		return nil
	})
}

// Downgrade implements backend.Downgrader. The ticket stays in its place, locked. It held the key alone, so nothing
// alive is before it.
func (t *ticket) Downgrade(ctx context.Context) error {
	return t.act(ctx, func() error {
		r := t.record
		if !r.Share.Exclusive() {
			return nil
		}
		r.Share = backend.Reader
		released.Add(1) // to readers
		if err := t.change(r); err != nil {
			return backend.NotExecuted(err)
		}
		return nil
	})
}

// hold makes the ticket a grant, whose file is watched soon.
func (t *ticket) hold() {
	released.Load()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holds.Store(true)
	if canWatch && t.file != nil && t.onLost != nil && t.later == nil {
		t.later = time.AfterFunc(watchAfter, t.watch)
	}
}

// watch begins to watch the ticket's own file. It may have been broken before.
func (t *ticket) watch() {
	if !t.b.life.Enter() {
		return
	}
	defer t.b.life.Leave()
	t.mu.Lock()
	if t.file != nil {
		t.unwatch, _ = t.b.watch(t.file.Name(), t.check)
	}
	t.mu.Unlock()
	t.check()
}

// check runs when the ticket's own file has changed. It reports a loss.
func (t *ticket) check() {
	t.mu.Lock()
	ended := t.file == nil
	err := t.verify()
	t.mu.Unlock()
	if !ended && errors.Is(err, backend.ErrLost) {
		t.onLost(err)
	}
}
