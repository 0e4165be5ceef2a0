package filelock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/interlock-go/lock/backend"
)

var (
	_ backend.Downgrader = (*ticket)(nil)
	_ backend.SlotHolder = (*ticket)(nil)
)

// Slots implements backend.SlotHolder.
func (t *ticket) Slots() []int { return slices.Clone(t.slots) }

// claim takes the slots of a ticket that no live ticket before it keeps from its permits. It does
// so within the guard, so that no two tickets take the same slot. A ticket behind this one may have
// taken its slots before.
func (t *ticket) claim(ctx context.Context) error {
	g, err := t.b.enter(ctx, t.path, false)
	if err != nil {
		return err
	}
	if g == nil {
		t.discard() // its file was deleted with the directory
		return errGone
	}
	defer g.exit()
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.verify(); errors.Is(err, backend.ErrLost) {
		return errGone
	} else if err != nil {
		return err
	}
	ns, err := g.dir.numbers()
	if err != nil {
		return err
	}
	hs, _, err := g.dir.holders(ns)
	if err != nil {
		return err
	}
	mine := slices.IndexFunc(hs, func(c contender) bool { return c.number == t.number })
	if mine < 0 {
		return fmt.Errorf("%s was damaged while it was read", ticketPath(t.path, t.number))
	}
	slots := freeSlots(t.share, slices.Delete(hs, mine, mine+1)) // t may have written some before an error
	if _, err := t.file.WriteAt([]byte(slotText(t.share.Capacity, slots)), int64(slotsAt)); err != nil {
		return err
	}
	t.slots = slots
	t.notify()
	return nil
}

// Downgrade implements backend.Downgrader. It replaces one byte of the ticket, which stays in its
// place, locked. The ticket held the key alone, so nothing alive is before it.
func (t *ticket) Downgrade(ctx context.Context) error {
	if err := t.b.begin(ctx); err != nil {
		return err
	}
	defer t.b.active.Done()
	g, err := t.b.enter(ctx, t.path, false) // no request for permits arrives meanwhile
	if err != nil {
		return backend.NotExecuted(err)
	}
	if g != nil {
		defer g.exit()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.verify(); err != nil {
		return err
	}
	if t.share.Exclusive() {
		if err := g.downgrade(t); err != nil {
			return backend.NotExecuted(err)
		}
		t.share = backend.Reader
	}
	t.notify()
	return nil
}

// downgrade makes the ticket that of a reader. After an error it is exclusive.
func (g *guard) downgrade(t *ticket) error {
	c := readCounter(g.fence)
	waiting, err := g.sharedTicket(c)
	if err != nil {
		return err
	}
	if s := waiting.share(); s.Capacity > 0 {
		return backend.CapacityError(backend.Reader, s)
	}
	if err := g.setShared(max(c.shared, t.number)); err != nil {
		return err
	}
	released.Add(1) // to readers
	_, err = t.file.WriteAt([]byte(modeRead), int64(modeAt))
	return err
}

// notify wakes those that watch the ticket, by a change of its attributes. The caller holds t.mu.
// If it fails, they notice the change at their next look.
func (t *ticket) notify() { _ = t.file.Chmod(t.info.Mode().Perm()) }
