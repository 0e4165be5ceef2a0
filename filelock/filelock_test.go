//go:build unix

package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
)

func TestTryAndRelease(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	a, b := open1(t, dir), open1(t, dir)
	req := request("k")
	req.Metadata = "me"
	g, err := a.TryAcquire(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []*Backend{a, b} {
		_, err := other.TryAcquire(ctx, request("k"))
		var locked *backend.LockedError
		if !errors.As(err, &locked) || locked.Holder.Metadata != "me" || locked.Holder.Owner != req.Owner || locked.Holder.Token != g.Token() {
			t.Fatalf("the holder is not described: %v", err)
		}
	}
	again, err := a.TryAcquire(ctx, req)
	if err != nil || again.Token() != g.Token() {
		t.Fatalf("an attempt sent twice: %v, %v", again, err)
	}
	release(t, try(t, b, "other"))
	if err := g.Renew(ctx, time.Minute); err != nil {
		t.Fatal(err)
	}
	release(t, g)
	wantErr(t, g.Release(ctx), backend.ErrLost)
	wantErr(t, g.Renew(ctx, time.Minute), backend.ErrLost)
	next := try(t, b, "k")
	if next.Token() <= g.Token() {
		t.Fatalf("token %d after %d", next.Token(), g.Token())
	}
	wantErr(t, g.Release(ctx), backend.ErrLost) // and leaves the successor alone
	release(t, next)
	wantNoTickets(t, a, "k")
}

func TestQueueIsFIFO(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	bs := []*Backend{open1(t, dir), open1(t, dir), open1(t, dir)}
	g := try(t, bs[0], "k")
	dead, cancel := context.WithCancel(ctx)
	var outs []chan outcome
	for i := range 12 {
		c := ctx
		if i%4 == 1 || i == 11 {
			c = dead
		}
		outs = append(outs, queue(t, c, bs[i%3], "k"))
	}
	_, err := bs[1].TryAcquire(ctx, request("k"))
	wantErr(t, err, backend.ErrLocked)
	cancel()
	last := g
	for i, out := range outs {
		if i%4 == 1 || i == 11 {
			wantErr(t, (<-out).err, context.Canceled)
		}
	}
	for i, out := range outs {
		if i%4 == 1 || i == 11 {
			continue
		}
		release(t, last)
		next := served(t, out)
		if next.Token() <= last.Token() {
			t.Errorf("token %d after %d", next.Token(), last.Token())
		}
		last = next
	}
	release(t, last)
	wantNoTickets(t, bs[0], "k")
}

// Without inotify waiters poll.
func TestQueueWithoutEvents(t *testing.T) {
	b := open1(t, t.TempDir())
	withoutEvents(t, b)
	g := try(t, b, "k")
	for range 3 {
		out := queue(t, t.Context(), b, "k")
		release(t, g)
		g = served(t, out)
	}
	release(t, g)
	wantNoTickets(t, b, "k")
}

func TestBreak(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	b := open1(t, dir)
	if h, err := b.Break(ctx, "k", ""); h != nil || err != nil {
		t.Fatalf("break of a free lock: %v, %v", h, err)
	}
	if entries, _ := os.ReadDir(filepath.Join(dir, "k")); entries != nil {
		t.Fatal("break made a directory")
	}
	lost := make(chan error, 9)
	req := request("k")
	req.OnLost = func(err error) { lost <- err }
	g, err := b.TryAcquire(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	out := queue(t, ctx, b, "k") // watches the same file in the same instance
	h, err := open1(t, dir).Break(ctx, "k", "")
	if err != nil || h == nil || h.Owner != req.Owner {
		t.Fatalf("removed %+v, %v", h, err)
	}
	next := served(t, out)
	if next.Token() <= g.Token() {
		t.Errorf("token %d after %d", next.Token(), g.Token())
	}
	if canWatch {
		select {
		case err := <-lost:
			wantErr(t, err, backend.ErrLost)
		case <-time.After(timeout):
			t.Fatal("the holder was not notified")
		}
	}
	wantErr(t, g.Renew(ctx, time.Minute), backend.ErrLost)
	wantErr(t, g.Release(ctx), backend.ErrLost)
	release(t, next)
	if canWatch && len(lost) > 0 {
		t.Error("notified more than once")
	}
	wantNoTickets(t, b, "k")
}

func TestReleaseIsNoLoss(t *testing.T) {
	b := open1(t, t.TempDir())
	req := request("k")
	req.OnLost = func(err error) { t.Errorf("a loss was reported: %v", err) }
	for range 200 {
		g, err := b.Acquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		release(t, g)
		req.Owner = request("k").Owner
	}
}

func TestAbandon(t *testing.T) {
	ctx, b := t.Context(), open1(t, t.TempDir())
	req := request("k")
	if err := b.Abandon(ctx, req); err != nil {
		t.Fatal(err)
	}
	g, err := b.TryAcquire(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := b.Abandon(ctx, req); err != nil {
			t.Fatal(err)
		}
	}
	wantErr(t, g.Release(ctx), backend.ErrLost)
	wantNoTickets(t, b, "k")
}

func TestAbandonWhileWaiting(t *testing.T) {
	ctx, b := t.Context(), open1(t, t.TempDir())
	g := try(t, b, "k")
	req := request("k")
	waiting, ended := make(chan struct{}), make(chan error, 1)
	req.OnWait = func(*backend.LockedError) { close(waiting) }
	go func() {
		_, err := b.Acquire(ctx, req)
		ended <- err
	}()
	<-waiting
	for range 2 {
		if err := b.Abandon(ctx, req); err != nil {
			t.Fatal(err)
		}
	}
	wantErr(t, <-ended, errAbandoned)
	release(t, g)
	wantNoTickets(t, b, "k")
}

func TestInspectAndList(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	plain, shop := open1(t, dir), open1(t, dir, WithPrefix("shop"))
	if info, err := plain.Inspect(ctx, "k"); err != nil || info.Holder != nil || info.Name != "k" {
		t.Fatalf("a free lock: %+v, %v", info, err)
	}
	names := []string{"a", "A", "..", "x/y", "\x00\xff", strings.Repeat("long/", 200), strings.Repeat("long/", 200) + "2"}
	for _, name := range names {
		try(t, plain, name)
		try(t, shop, name)
	}
	try(t, plain, "shop@a")
	release(t, try(t, shop, "free"))
	var listed []string
	if err := shop.List(ctx, func(i backend.Info) bool {
		listed = append(listed, i.Name)
		_, err := shop.Break(ctx, i.Name, "") // yield may use the Backend
		return err == nil && i.Holder != nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(listed)
	slices.Sort(names)
	if !slices.Equal(listed, names) {
		t.Fatalf("listed %q, want %q", listed, names)
	}
	n := 0
	if err := plain.List(ctx, func(backend.Info) bool { n++; return n < 3 }); err != nil || n != 3 {
		t.Fatalf("%d yielded after stop, error %v", n, err)
	}
}

func TestClose(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	a, b := open1(t, dir), open1(t, dir)
	g := try(t, a, "k")
	mine := try(t, b, "mine")
	out := queue(t, ctx, b, "k")
	for range 2 {
		if err := b.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	wantErr(t, (<-out).err, backend.ErrClosed)
	for _, err := range []error{
		b.Ping(ctx), b.List(ctx, nil), b.Abandon(ctx, request("k")), mine.Release(ctx), mine.Renew(ctx, 1),
		second(b.TryAcquire(ctx, request("k"))), second(b.Acquire(ctx, request("k"))),
		second(b.Break(ctx, "k", "")), second(b.Inspect(ctx, "k")),
	} {
		wantErr(t, err, backend.ErrClosed)
	}
	release(t, try(t, a, "mine"))
	release(t, g)
	wantNoTickets(t, a, "k")
}

func second[T any](_ T, err error) error { return err }

func TestManyHeldAtOnce(t *testing.T) {
	b := open1(t, t.TempDir())
	before := fds(t)
	var gs []backend.Grant
	for i := range 300 {
		req := request(fmt.Sprint("k", i))
		req.OnLost = func(error) {}
		g, err := b.TryAcquire(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		gs = append(gs, g)
	}
	// one for each, the inotify instance, what the runtime's poller opens, and the directories that stay open
	if n := fds(t) - before; n > 300+3*maxOpen+4 {
		t.Errorf("300 holds took %d files", n)
	}
	for _, g := range gs {
		release(t, g)
	}
	if n := fds(t) - before; n > 3*maxOpen+4 {
		t.Errorf("%d files left open", n)
	}
	if canWatch {
		eventually(t, "the watches are removed", func() bool { return b.watches() == 0 })
	}
}

func TestExclusion(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "count")
	var wg sync.WaitGroup
	for range 8 {
		b := open1(t, dir)
		for range 2 {
			wg.Go(func() {
				for range 15 {
					g, err := b.Acquire(t.Context(), request("k"))
					if err == nil {
						err = errors.Join(addOne(file, g.Token()), g.Release(t.Context()))
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	if content, _ := os.ReadFile(file); !strings.HasPrefix(string(content), "240 ") {
		t.Fatalf("counted %q, want 240", content)
	}
	wantNoTickets(t, open1(t, dir), "k")
}

// More names than directories stay open, each used by several goroutines at once.
func TestManyNamesAtOnce(t *testing.T) {
	b := open1(t, t.TempDir())
	before := fds(t)
	var inside [2 * maxOpen]atomic.Int32
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for n := range inside {
				n = (n*7 + i/2) % len(inside) // two goroutines have the same order
				g, err := b.Acquire(t.Context(), request(fmt.Sprint("k", n)))
				if err != nil {
					t.Error(err)
					return
				}
				if inside[n].Add(1) != 1 {
					t.Errorf("two holders of k%d", n)
				}
				inside[n].Add(-1)
				release(t, g)
			}
		})
	}
	all.Wait()
	if n := fds(t) - before; n > 3*maxOpen+4 {
		t.Errorf("%d files left open", n)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for path, d := range b.open {
		if d.users != 0 {
			t.Errorf("%s has %d users", path, d.users)
		}
	}
}
