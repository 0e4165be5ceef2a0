package fence_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/fence"
)

func wantStale(t *testing.T, err error, token, greatest uint64) {
	t.Helper()
	var stale *fence.StaleError
	if !errors.Is(err, fence.ErrStale) || !errors.As(err, &stale) || stale.Token != token || stale.Greatest != greatest {
		t.Fatalf("got %v, want ErrStale of %d after %d", err, token, greatest)
	}
}

func TestGuard(t *testing.T) {
	var g fence.Guard
	ran := 0
	run := func() error { ran++; return nil }
	for _, token := range []uint64{3, 3, 7} {
		if err := g.Do(token, run); err != nil {
			t.Fatal(err)
		}
	}
	wantStale(t, g.Do(6, run), 6, 7)
	wantStale(t, g.Check(1), 1, 7)
	if err := g.Do(0, run); !errors.Is(err, fence.ErrNoToken) || errors.Is(err, fence.ErrStale) {
		t.Fatalf("token 0: %v", err)
	}
	if err := g.Check(9); err != nil || ran != 3 || g.Greatest() != 9 {
		t.Fatalf("%v, ran %d times, greatest %d", err, ran, g.Greatest())
	}
	const want = "fence: stale fencing token 8: 9 has been seen"
	if err := g.Do(8, run); err == nil || err.Error() != want {
		t.Fatalf("got %v, want %s", err, want)
	}
	// the token is remembered even if the function fails or panics
	failed := errors.New("failed")
	if err := g.Do(10, func() error { return failed }); err != failed || g.Greatest() != 10 {
		t.Fatal(err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = g.Do(11, func() error { panic("boom") })
	}()
	wantStale(t, g.Do(10, run), 10, 11)
}

// Functions do not overlap, and a call that waited behind a greater token is refused.
func TestGuardOneAtATime(t *testing.T) {
	var g fence.Guard
	var all sync.WaitGroup
	last, writes := uint64(0), 0 // protected by the guard only
	for range 8 {
		all.Go(func() {
			for range 2000 {
				token := 1 + rand.Uint64N(1000)
				err := g.Do(token, func() error {
					if token < last {
						t.Errorf("%d writes after %d", token, last)
					}
					last = token
					writes++
					return nil
				})
				if err != nil && !errors.Is(err, fence.ErrStale) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if writes == 0 || last != g.Greatest() {
		t.Errorf("%d writes, the last with %d of %d", writes, last, g.Greatest())
	}
}

func TestGuardsKeysApart(t *testing.T) {
	var g fence.Guards
	for key, token := range map[string]uint64{"a": 5, "b": 2, "": 1} {
		if err := g.Check(key, token); err != nil {
			t.Fatal(err)
		}
	}
	wantStale(t, g.Check("a", 4), 4, 5)
	const want = `fence: stale fencing token 1 for "b": 2 has been seen`
	if err := g.Check("b", 1); err == nil || err.Error() != want {
		t.Fatalf("got %v, want %s", err, want)
	}
	if g.Greatest("a") != 5 || g.Greatest("none") != 0 || g.Len() != 3 {
		t.Fatalf("greatest %d, %d keys", g.Greatest("a"), g.Len())
	}
	// a call blocks only calls for its own key
	inside, done := make(chan struct{}), make(chan error)
	go func() { done <- g.Do("a", 6, func() error { close(inside); return g.Check("b", 3) }) }()
	<-inside
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// The number of keys is bounded, and a key is forgotten only after Keep.
func TestGuardsForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fence.Guards{Max: 3, Keep: time.Hour}
		check := func(key string, token uint64) error { t.Helper(); return g.Check(key, token) }
		for i, key := range []string{"a", "b", "c"} {
			if err := check(key, 10); err != nil {
				t.Fatal(i, err)
			}
			time.Sleep(time.Minute)
		}
		if err := check("d", 1); !errors.Is(err, fence.ErrFull) {
			t.Fatalf("got %v, want ErrFull", err)
		}
		wantStale(t, check("a", 9), 9, 10) // and uses a
		time.Sleep(57*time.Minute - time.Nanosecond)
		// b was used 59 minutes ago, nearly
		if err := check("d", 1); !errors.Is(err, fence.ErrFull) {
			t.Fatalf("got %v, want ErrFull", err)
		}
		time.Sleep(2 * time.Minute)
		if err := check("d", 1); err != nil {
			t.Fatal(err)
		}
		if g.Len() != 3 || g.Greatest("b") != 0 || g.Greatest("a") != 10 || g.Greatest("c") != 10 {
			t.Fatalf("%d keys, b %d", g.Len(), g.Greatest("b"))
		}
		// a key in use is never forgotten
		in, out := make(chan struct{}), make(chan struct{})
		go func() { _ = g.Do("a", 11, func() error { close(in); <-out; return nil }) }()
		<-in
		time.Sleep(2 * time.Hour)
		for _, key := range []string{"x", "y"} {
			if err := check(key, 1); err != nil {
				t.Fatal(err)
			}
		}
		if err := check("z", 1); !errors.Is(err, fence.ErrFull) {
			t.Fatalf("got %v, want ErrFull", err)
		}
		close(out)
		synctest.Wait()
		wantStale(t, check("a", 10), 10, 11)
		time.Sleep(2 * time.Hour)
		g.Keep = -1
		if err := check("z", 1); !errors.Is(err, fence.ErrFull) {
			t.Fatalf("got %v, want ErrFull because Keep is negative", err)
		}
	})
}

func TestGuardsTogether(t *testing.T) {
	g := fence.Guards{Max: 5, Keep: time.Nanosecond}
	var all sync.WaitGroup
	var inside [10]int
	for range 8 {
		all.Go(func() {
			for range 2000 {
				i := rand.N(len(inside))
				err := g.Do(fmt.Sprint(i), 1+rand.Uint64N(100), func() error { inside[i]++; return nil })
				if err != nil && !errors.Is(err, fence.ErrStale) && !errors.Is(err, fence.ErrFull) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if g.Len() > 5 {
		t.Errorf("%d keys", g.Len())
	}
}

// FuzzGuards compares with a map that forgets nothing.
func FuzzGuards(f *testing.F) {
	f.Add([]byte{1, 5, 1, 4, 2, 3, 1, 5})
	f.Fuzz(func(t *testing.T, steps []byte) {
		g := fence.Guards{Max: 8, Keep: -1}
		greatest := map[string]uint64{}
		for i := 0; i+1 < len(steps); i += 2 {
			key, token := fmt.Sprint(steps[i]%12), uint64(steps[i+1])
			_, known := greatest[key]
			var want error
			switch {
			case !known && len(greatest) == 8:
				want = fence.ErrFull
			case token == 0:
				want = fence.ErrNoToken
				greatest[key] += 0
			case token < greatest[key]:
				want = fence.ErrStale
			default:
				greatest[key] = token
			}
			ran := false
			err := g.Do(key, token, func() error { ran = true; return nil })
			if !errors.Is(err, want) || ran != (want == nil) {
				t.Fatalf("step %d: key %s, token %d: got %v, want %v", i, key, token, err, want)
			}
		}
	})
}
