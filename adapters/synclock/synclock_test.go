package synclock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/adapters/synclock"
	"github.com/interlock-go/lock/memlock"
)

var _ sync.Locker = (*synclock.Locker)(nil)

func clients(t *testing.T, n int) []*lock.Client {
	space, out := memlock.NewSpace(), make([]*lock.Client, n)
	for i := range out {
		c, err := lock.New(space.Backend(), lock.WithLogger(nil))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		out[i] = c
	}
	return out
}

func never(t *testing.T) func(error) {
	return func(err error) { t.Error("lost:", err) }
}

// Goroutines of two clients use the Locker as sync.Cond does.
func TestExcludes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0 // the race detector checks it, too
		var all sync.WaitGroup
		for _, c := range clients(t, 2) {
			l := synclock.New(t.Context(), c.Mutex("k"), never(t))
			cond := sync.NewCond(l)
			for range 4 {
				all.Go(func() {
					cond.L.Lock()
					defer cond.L.Unlock()
					seen := n
					time.Sleep(time.Millisecond)
					n = seen + 1
				})
			}
		}
		all.Wait()
		if n != 8 {
			t.Fatalf("%d of 8", n)
		}
	})
}

// A loss is reported once. Other processes may then hold the lock, but in this process it
// stays locked until Unlock.
func TestLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs := clients(t, 2)
		losses := make(chan error, 10)
		l := synclock.New(t.Context(), cs[0].Mutex("k"), func(err error) { losses <- err })
		l.Lock()
		if _, err := cs[1].Break(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(losses) != 1 || !errors.Is(<-losses, lock.ErrLost) {
			t.Fatal("the loss was not reported")
		}
		other, err := cs[1].Mutex("k").TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		second := make(chan struct{})
		go func() {
			l.Lock()
			close(second)
		}()
		synctest.Wait()
		select {
		case <-second:
			t.Fatal("locked by two goroutines of a process")
		default:
		}
		l.Unlock()
		<-second
		l.Unlock()
		synctest.Wait()
		if len(losses) != 0 {
			t.Fatal("reported without a loss:", <-losses)
		}
	})
}

// The end of a lease is reported even if Unlock is called at once.
func TestClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clients(t, 1)[0]
		losses := make(chan error, 10)
		l := synclock.New(t.Context(), c.Mutex("k"), func(err error) { losses <- err })
		l.Lock()
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.Unlock()
		synctest.Wait()
		if len(losses) != 1 || !errors.Is(<-losses, lock.ErrClosed) {
			t.Fatal("not reported")
		}
	})
}

// If locking fails, Lock panics and leaves the Locker unlocked.
func TestPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clients(t, 1)[0]
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l := synclock.New(ctx, c.Mutex("k"), never(t))
		other, err := c.Mutex("k").TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err, ok := panicOf(l.Lock).(error); !ok || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
		if panicOf(l.Unlock) == nil {
			t.Fatal("Unlock of an unlocked lock did not panic")
		}
		if err := other.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		bounded, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l = synclock.New(bounded, c.Mutex("k"), never(t))
		l.Lock()
		if err, ok := panicOf(l.Lock).(error); !ok || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal("locked twice:", err)
		}
		l.Unlock()
		if panicOf(func() { synclock.New(t.Context(), c.Mutex("k"), nil) }) == nil {
			t.Fatal("New without lost did not panic")
		}
	})
}

func panicOf(f func()) (p any) {
	defer func() { p = recover() }()
	f()
	return nil
}
