package fence_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/interlock-go/lock/fence"
)

func TestRWGuard(t *testing.T) {
	var g fence.RWGuard
	ran := 0
	run := func() error { ran++; return nil }
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(g.Read(2, run))
	ok(g.Read(1, run)) // readers do not exclude each other
	wantStale(t, g.Write(1, run), 1, 2)
	ok(g.Write(3, run))
	ok(g.Write(3, run))
	wantStale(t, g.Read(2, run), 2, 3)
	ok(g.Read(3, run)) // a writer reads, also after Downgrade
	ok(g.Read(5, run))
	wantStale(t, g.Write(4, run), 4, 5)
	ok(g.Read(4, run))
	if err := g.Read(0, run); !errors.Is(err, fence.ErrNoToken) {
		t.Fatalf("token 0: got %v, want ErrNoToken", err)
	}
	if ran != 7 {
		t.Fatalf("%d functions ran, want 7", ran)
	}
}

// Reads overlap with each other and not with a write.
func TestRWGuardOverlap(t *testing.T) {
	var g fence.RWGuard
	var both sync.WaitGroup
	both.Add(2)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			_ = g.Read(1, func() error {
				both.Done()
				both.Wait() // for the other reader
				return nil
			})
		})
	}
	all.Wait()
	n := 0
	for token := range uint64(100) {
		all.Go(func() { _ = g.Write(token+1, func() error { n++; return nil }) }) // a race without the guard
		all.Go(func() { _ = g.Read(token+1, func() error { _ = n; return nil }) })
	}
	all.Wait()
}

func TestSlots(t *testing.T) {
	var s fence.Slots
	run := func() error { return nil }
	for _, c := range []struct {
		slots []int
		token uint64
		stale uint64 // the greatest token that refuses it, 0 if it is accepted
	}{
		{[]int{0, 1}, 5, 0},
		{[]int{2}, 3, 0}, // another slot
		{[]int{1}, 4, 5},
		{[]int{1, 2}, 6, 0},
		{[]int{0}, 5, 0},
		{[]int{2}, 5, 6},
		{[]int{0, 1}, 5, 6},
	} {
		err := s.Do(c.slots, c.token, run)
		if c.stale == 0 && err != nil {
			t.Errorf("token %d of slots %v: got %v, want nil", c.token, c.slots, err)
		} else if c.stale != 0 {
			wantStale(t, err, c.token, c.stale)
		}
	}
	if err := s.Do(nil, 9, run); !errors.Is(err, fence.ErrNoToken) {
		t.Errorf("no slots: got %v, want ErrNoToken", err)
	}
	const want = `fence: stale fencing token 4 for "slot 1": 6 has been seen`
	if err := s.Do([]int{1}, 4, run); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
