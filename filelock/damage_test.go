//go:build unix

package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
)

func TestDeletedDirectory(t *testing.T) {
	ctx, dir := t.Context(), filepath.Join(t.TempDir(), "locks")
	b := open1(t, dir)
	g := try(t, b, "k")
	release(t, g)
	last := g.Token()
	for _, gone := range []string{filepath.Join(dir, "k", fenceFile), filepath.Join(dir, "k"), dir} {
		if err := os.RemoveAll(gone); err != nil {
			t.Fatal(err)
		}
		g := try(t, b, "k")
		if g.Token() <= last {
			t.Errorf("without %s: token %d after %d", gone, g.Token(), last)
		}
		last = g.Token()
		release(t, g)
	}
	// While it is held: the holder learns of it, and a waiter queues up again.
	g = try(t, b, "k")
	out := queue(t, ctx, b, "k")
	// moved first: the waiter creates the directory while it is being deleted
	if err := errors.Join(os.Rename(dir, dir+".old"), os.RemoveAll(dir+".old")); err != nil {
		t.Fatal(err)
	}
	next := served(t, out)
	if next.Token() <= g.Token() {
		t.Errorf("token %d after %d", next.Token(), g.Token())
	}
	wantErr(t, g.Release(ctx), backend.ErrLost)
	release(t, next)
	wantNoTickets(t, b, "k")
}

// TestReplacedTicket: a file of the same name is not the holder's ticket.
func TestReplacedTicket(t *testing.T) {
	ctx, b := t.Context(), open1(t, t.TempDir())
	g := try(t, b, "k")
	path := ticketPath(filepath.Join(b.root, "k"), g.Token())
	if err := errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	wantErr(t, g.Renew(ctx, time.Second), backend.ErrLost)
	wantErr(t, g.Release(ctx), backend.ErrLost)
	if _, err := os.Stat(path); err != nil {
		t.Errorf("another's ticket was removed: %v", err)
	}
}

func TestCounterAheadOrDamaged(t *testing.T) {
	b := open1(t, t.TempDir())
	release(t, try(t, b, "k"))
	fence := filepath.Join(b.root, "k", fenceFile)
	ahead := uint64(time.Now().Add(1000 * time.Hour).UnixMicro()) // the clock was set back since
	for _, c := range []struct {
		content string
		want    uint64
	}{{fmt.Sprintf("%020d\n", ahead), ahead + 1}, {fmt.Sprintf("%020d\n", ahead+7), ahead + 8}, {"rubbish", 0}, {"", 0}} {
		if err := os.WriteFile(fence, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		g := try(t, b, "k")
		if c.want != 0 && g.Token() != c.want || g.Token() > ahead+9 || g.Token() < ahead/2 {
			t.Errorf("after %q: token %d, want %d", c.content, g.Token(), c.want)
		}
		release(t, g)
	}
	// What the dead and foreign files say counts as well, and they are swept.
	foreign := filepath.Join(b.root, "k", fmt.Sprintf("%020d", ahead+100))
	if err := os.WriteFile(foreign, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	g := try(t, b, "k")
	if g.Token() != ahead+101 {
		t.Errorf("token %d, want %d", g.Token(), ahead+101)
	}
	release(t, g)
	wantNoTickets(t, b, "k")
}

func TestForeignHolder(t *testing.T) {
	b := open1(t, t.TempDir())
	release(t, try(t, b, "k"))
	f, err := os.Create(filepath.Join(b.root, "k", fmt.Sprintf("%020d", 7)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if ok, err := tryFlock(f, exclusive); !ok || err != nil {
		t.Fatal(ok, err)
	}
	_, err = b.TryAcquire(t.Context(), request("k"))
	var locked *backend.LockedError
	if !errors.As(err, &locked) || !locked.Holder.Foreign || locked.Holder.Token != 7 {
		t.Fatalf("got %v", err)
	}
}

func TestFrozenGuard(t *testing.T) {
	b := open1(t, t.TempDir())
	release(t, try(t, b, "k"))
	f, err := os.Open(filepath.Join(b.root, "k", fenceFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if ok, err := tryFlock(f, exclusive); !ok || err != nil {
		t.Fatal(ok, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = b.TryAcquire(ctx, request("k"))
	wantErr(t, err, context.DeadlineExceeded)
	release(t, try(t, b, "other")) // only this lock is affected

	defer func(d time.Duration) { guardTimeout = d }(guardTimeout)
	guardTimeout = 20 * time.Millisecond
	_, err = b.Acquire(t.Context(), request("k"))
	if err == nil || !strings.Contains(err.Error(), "may be stopped") || errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	wantNoTickets(t, b, "k")
}

// Another directory in the place of that of a lock is another lock.
func TestReplacedDirectory(t *testing.T) {
	b, other := open1(t, t.TempDir()), open1(t, t.TempDir())
	g := try(t, b, "k")
	held := try(t, other, "k")
	mine, theirs := filepath.Join(b.root, "k"), filepath.Join(other.root, "k")
	if err := errors.Join(os.Rename(mine, mine+".old"), os.Rename(theirs, mine)); err != nil {
		t.Fatal(err)
	}
	err := second(b.TryAcquire(t.Context(), request("k")))
	var locked *backend.LockedError
	if !errors.As(err, &locked) || locked.Holder.Token != held.Token() {
		t.Errorf("want the holder of the directory that is there now, got %v", err)
	}
	wantErr(t, g.Renew(t.Context(), time.Minute), backend.ErrLost)
}

// A probe that keeps the flock of a new ticket from its owner does not take the lock from it: the owner makes another.
func TestProbedWhileMade(t *testing.T) {
	b := open1(t, t.TempDir())
	release(t, try(t, b, "k"))
	next := uint64(time.Now().Add(1000 * time.Hour).UnixMicro()) // the clock does not reach it, so it is known
	for deadline, met := time.Now().Add(timeout), 0; met < 5; next += 2 {
		if time.Now().After(deadline) {
			t.Fatalf("%d probes came while a ticket was made", met)
		}
		setCounter(t, b, "k", next-1, 0)
		probed := make(chan *os.File)
		go func() {
			path := ticketPath(filepath.Join(b.root, "k"), next)
			f, err := os.Open(path)
			for err != nil {
				f, err = os.Open(path)
			}
			if free, err := tryFlock(f, shared); !free || err != nil {
				f.Close()
				f = nil // too late
			}
			probed <- f
		}()
		g := try(t, b, "k")
		f := <-probed
		if f != nil {
			met++
			wantErr(t, second(b.TryAcquire(t.Context(), request("k"))), backend.ErrLocked)
			f.Close()
		}
		if want := f != nil; (g.Token() > next) != want {
			t.Fatalf("token %d after ticket %d, which a probe had locked: %v", g.Token(), next, want)
		}
		release(t, g)
	}
	wantNoTickets(t, b, "k")
}
