//go:build unix

package filelock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
)

func waits(t testing.TB, what string, outs ...chan outcome) {
	t.Helper()
	time.Sleep(5 * time.Millisecond)
	for i, out := range outs {
		select {
		case o := <-out:
			t.Fatalf("%s: waiter %d was served: %+v", what, i, o)
		default:
		}
	}
}

func downgradeOf(t testing.TB, g backend.Grant) {
	t.Helper()
	if err := g.(backend.Downgrader).Downgrade(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A writer behind several readers waits for all of them, in whatever order they leave, whether or
// not one of them was granted a free lock.
func TestWriterWaitsForEachReader(t *testing.T) {
	for _, waited := range []bool{false, true} {
		for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {0, 2, 1}} {
			dir := t.TempDir()
			bs := []*Backend{open1(t, dir), open1(t, dir)}
			var first backend.Grant
			if waited {
				first = try(t, bs[0], "k")
			}
			var outs []chan outcome
			readers := make([]backend.Grant, 3)
			for i := range readers {
				if waited {
					outs = append(outs, queueShare(t, t.Context(), bs[i%2], "k", backend.Reader))
				} else {
					readers[i] = tryShare(t, bs[i%2], "k", backend.Reader)
				}
			}
			writer := queue(t, t.Context(), bs[1], "k")
			behind := queueShare(t, t.Context(), bs[0], "k", backend.Reader)
			if waited {
				release(t, first)
				for i, out := range outs {
					readers[i] = served(t, out)
				}
			}
			wantHolders(t, bs[0], "k", 3, 2)
			noted := lockDir(t, bs[0], "k").counter().granted // a writer that waits for that ticket holds when it ends
			for _, i := range order {
				if waited && readers[i].Token() == noted {
					t.Errorf("reader %d, which was granted beside others, is noted as granted", i)
				}
				waits(t, fmt.Sprint("beside reader ", i), writer, behind)
				release(t, readers[i])
			}
			w := served(t, writer)
			waits(t, "beside the writer", behind)
			release(t, w)
			release(t, served(t, behind))
			wantNoTickets(t, bs[0], "k")
		}
	}
}

// An error about a reader names a holder also if the first reader has left.
func TestHolderOfSeveral(t *testing.T) {
	b := open1(t, t.TempDir())
	first, last := tryShare(t, b, "k", backend.Reader), tryShare(t, b, "k", backend.Reader)
	for _, present := range []backend.Grant{first, last} {
		err := second(b.TryAcquire(t.Context(), request("k")))
		var locked *backend.LockedError
		if !errors.As(err, &locked) || locked.Holder.Token != present.Token() || locked.Holder.Share != backend.Reader {
			t.Errorf("want the holder with token %d, got %v", present.Token(), err)
		}
		release(t, present)
	}
	wantNoTickets(t, b, "k")
}

func TestDowngrade(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	a, b := open1(t, dir), open1(t, dir)
	req := request("k")
	req.OnLost = func(err error) { t.Errorf("a loss was reported: %v", err) }
	g, err := a.TryAcquire(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	readers := []chan outcome{queueShare(t, ctx, a, "k", backend.Reader), queueShare(t, ctx, b, "k", backend.Reader)}
	writer := queue(t, ctx, b, "k")
	last := queueShare(t, ctx, b, "k", backend.Reader)
	start := time.Now()
	downgradeOf(t, g)
	r0, r1 := served(t, readers[0]), served(t, readers[1])
	if took := time.Since(start); canWatch && took > idle/2 {
		t.Errorf("the readers were not woken: %v", took)
	}
	downgradeOf(t, g)
	if again, err := os.ReadFile(ticketPath(filepath.Join(dir, "k"), g.Token())); err != nil || strings.Count(string(again), "\n") != 2 {
		t.Errorf("want the ticket with two lines, got %q, %v", again, err)
	}
	waits(t, "beside readers", writer, last)
	if h := wantHolders(t, a, "k", 3, 2).Holder; h.Token != g.Token() || h.Share != backend.Reader || h.Owner != req.Owner {
		t.Errorf("the holder after Downgrade: %+v", h)
	}
	again, err := a.TryAcquire(ctx, req)
	if err != nil || again.Token() != g.Token() {
		t.Errorf("the attempt sent again: %v, %v", again, err)
	}
	if err := g.Renew(ctx, time.Minute); err != nil {
		t.Error(err)
	}
	release(t, r0)
	release(t, g)
	waits(t, "beside a reader", writer, last)
	release(t, r1)
	w := served(t, writer)
	wantErr(t, g.(backend.Downgrader).Downgrade(ctx), backend.ErrLost)
	if _, err := b.Break(ctx, "k", ""); err != nil {
		t.Fatal(err)
	}
	wantErr(t, w.(backend.Downgrader).Downgrade(ctx), backend.ErrLost)
	r := served(t, last)
	downgradeOf(t, r)
	release(t, r)
	wantNoTickets(t, a, "k")
	if err := os.RemoveAll(filepath.Join(dir, "k")); err != nil {
		t.Fatal(err)
	}
	wantErr(t, r.(backend.Downgrader).Downgrade(ctx), backend.ErrLost)
}

// Slots stay distinct when holders leave in any order, are broken, and die.
func TestSlotsOfTheDead(t *testing.T) {
	dir := t.TempDir()
	b := open1(t, dir)
	a := tryShare(t, b, "k", permits(1, 6))
	p := start(t, "hold", dir, "k", "2", "6")
	p.expect(t, "held")
	c := tryShare(t, b, "k", permits(3, 6))
	wantSlots(t, a, 0)
	wantSlots(t, c, 3, 4, 5)
	outs := []chan outcome{
		queueShare(t, t.Context(), b, "k", permits(2, 6)), queueShare(t, t.Context(), b, "k", permits(1, 6)), queueShare(t, t.Context(), b, "k", permits(1, 6)),
	}
	waits(t, "where all are held", outs...)
	killed := time.Now()
	p.kill()
	d := served(t, outs[0])
	if took := time.Since(killed); canWatch && took > idle/2 {
		t.Errorf("the first waiter was not woken: %v", took)
	}
	wantSlots(t, d, 1, 2)
	waits(t, "where all are held again", outs[1:]...)
	if h, err := b.Break(t.Context(), "k", c.(*ticket).record.Owner); err != nil || h.Token != c.Token() {
		t.Fatal(h, err)
	}
	e, f := served(t, outs[1]), served(t, outs[2])
	wantSlots(t, e, 3)
	wantSlots(t, f, 4)
	info := wantHolders(t, b, "k", 4, 0)
	if fmt.Sprint(info.Holder.Slots, info.Others[0].Slots, info.Others[1].Slots, info.Others[2].Slots) != "[0] [1 2] [3] [4]" {
		t.Errorf("slots: %s", text(info))
	}
	release(t, a)
	g := tryShare(t, b, "k", permits(2, 6))
	wantSlots(t, g, 0, 5)
	if h, err := b.Break(t.Context(), "k", ""); err != nil || h.Token != d.Token() {
		t.Fatal(h, err)
	}
	all := tryShare(t, b, "k", permits(6, 6))
	wantSlots(t, all, 0, 1, 2, 3, 4, 5)
	wantErr(t, e.Renew(t.Context(), time.Minute), backend.ErrLost)
	for _, broken := range []backend.Grant{c, d, e, f, g} {
		wantErr(t, broken.Release(t.Context()), backend.ErrLost)
	}
	release(t, all)
	wantNoTickets(t, b, "k")
}

// A waiter that was admitted and has not noticed it is stopped, and then dies, or notices it after
// a later one.
func TestStoppedFirstWaiter(t *testing.T) {
	b := open1(t, t.TempDir())
	a := tryShare(t, b, "k", permits(2, 3))
	c := tryShare(t, b, "k", permits(1, 3))
	// Tickets in the queue whose processes do nothing.
	stopped := func() *ticket {
		req := request("k")
		req.Share = permits(1, 3)
		tk, before, locked, err := b.arrive(t.Context(), &req, true)
		if err != nil || locked == nil || before == 0 {
			t.Fatal(before, locked, err)
		}
		return tk
	}
	t1, t2 := stopped(), stopped()
	if next, err := t1.look(t.Context(), anyTicket, false); next != anyTicket || err != nil {
		t.Fatalf("the first waiter waits for %d, %v", next, err)
	}
	if next, err := t2.look(t.Context(), t1.number, true); next != t1.number || err != nil {
		t.Fatalf("the second waiter waits for %d, %v", next, err)
	}
	release(t, a)
	if next, err := t2.look(t.Context(), t1.number, false); next != t1.number || err != nil {
		t.Fatalf("a waiter behind one that has no slots yet waits for %d, %v", next, err)
	}
	req := request("k")
	req.Share = permits(1, 3)
	wantErr(t, second(b.TryAcquire(t.Context(), req)), backend.ErrLocked) // would overtake
	if next, err := t2.look(t.Context(), t1.number, true); next != 0 || err != nil {
		t.Fatalf("a deep look behind one that was admitted: %d, %v", next, err)
	}
	wantSlots(t, t2, 0)
	info := wantHolders(t, b, "k", 3, 0)
	if fmt.Sprint(info.Holder.Slots, info.Others[0].Slots, info.Others[1].Slots) != "[2] [] [0]" {
		t.Errorf("slots: %s", text(info))
	}
	t3 := stopped()
	if next, err := t3.look(t.Context(), anyTicket, false); next != anyTicket || err != nil {
		t.Fatalf("the first waiter behind three holders waits for %d, %v", next, err)
	}
	if next, err := t1.look(t.Context(), anyTicket, false); next != 0 || err != nil {
		t.Fatal(next, err)
	}
	wantSlots(t, t1, 1)
	t1.discard()
	if next, err := t3.look(t.Context(), anyTicket, false); next != 0 || err != nil {
		t.Fatal(next, err)
	}
	wantSlots(t, t3, 1)
	t2.discard()
	t3.discard()
	release(t, c)
	wantNoTickets(t, b, "k")
}

// A ticket that is deleted before it has its slots queues again.
func TestBreakOfAdmittedPermits(t *testing.T) {
	b := open1(t, t.TempDir())
	w := try(t, b, "k")
	out := queueShare(t, t.Context(), b, "k", permits(1, 1))
	d := lockDir(t, b, "k")
	ns, err := d.numbers(newTicket)
	if err != nil || len(ns) != 2 {
		t.Fatal(ns, err)
	}
	if err := d.remove(ticketName(ns[1])); err != nil {
		t.Fatal(err)
	}
	release(t, w)
	g := served(t, out)
	if g.Token() <= ns[1] {
		t.Errorf("token %d after %d", g.Token(), ns[1])
	}
	wantSlots(t, g, 0)
	release(t, g)
	wantNoTickets(t, b, "k")
}

// Without inotify waiters for shares poll.
func TestSharesWithoutEvents(t *testing.T) {
	b := open1(t, t.TempDir())
	withoutEvents(t, b)
	g := try(t, b, "k")
	outs := []chan outcome{queueShare(t, t.Context(), b, "k", backend.Reader), queueShare(t, t.Context(), b, "k", backend.Reader)}
	downgradeOf(t, g)
	release(t, served(t, outs[0]))
	release(t, served(t, outs[1]))
	release(t, g)
	g = tryShare(t, b, "k", permits(3, 3))
	outs = []chan outcome{queueShare(t, t.Context(), b, "k", permits(1, 3)), queueShare(t, t.Context(), b, "k", permits(1, 3))}
	release(t, g)
	wantSlots(t, served(t, outs[0]), 0)
	wantSlots(t, served(t, outs[1]), 1)
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}
