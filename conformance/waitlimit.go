package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/interlock-go/lock"
)

// waitLimit is the handler of a request: it waits for a bounded time, then works for longer.
func waitLimit(t *T) {
	const limit, longer, work = 500 * time.Millisecond, 2 * time.Second, 3 * time.Second
	key, s := t.key("wait-limit"), t.steady(t.ttl())
	other := t.client()
	l := t.mustLock(other.Mutex(key), "a free key")
	for _, wait := range []struct {
		what string
		lock func() error
	}{
		{"Lock of a mutex with a wait limit", func() error {
			_, err := s.c.Mutex(key, lock.WithWait(limit)).Lock(t.ctx)
			return err
		}},
		{"Do with a wait limit", func() error {
			return lock.Do(t.ctx, s.c.Mutex(key), func(context.Context) error { return nil }, lock.WithWait(limit))
		}},
	} {
		s.forget()
		start := time.Now()
		var err error
		t.within(limit+cancelPromptly+t.slack(), wait.what, func() { err = wait.lock() })
		switch took := time.Since(start); {
		case !errors.Is(err, lock.ErrWaitLimit) || !errors.Is(err, lock.ErrLocked):
			t.answered(s.waiter, limit, err)
			t.errorf("%s of %v, of a held key: want ErrWaitLimit and ErrLocked, got %v", wait.what, limit, err)
		case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
			t.errorf("%s of %v: want no error of a context, since the caller's has not ended, got %v", wait.what, limit, err)
		case took < limit:
			t.errorf("%s of %v: want it to use its time, it gave up after %v", wait.what, limit, took)
		}
	}

	s.forget()
	// The grant is waited for, so that it is one of a request with a deadline.
	done := make(chan error, 1)
	working := make(chan *lock.Lease, 1)
	go func() {
		done <- lock.Do(t.ctx, s.c.Mutex(key), func(ctx context.Context) error {
			working <- lock.FromContext(ctx)
			select {
			case <-time.After(work):
			case <-ctx.Done():
			}
			return context.Cause(ctx)
		}, lock.WithWait(longer)) // its end comes while the work goes on
	}()
	select {
	case <-s.waits:
	case err := <-done:
		t.answered(s.waiter, longer, err)
		t.fatalf("Do with a wait limit of %v, of a held key: want it to wait, got %v", longer, err)
	case <-time.After(t.slack()):
		t.fatalf("Do of a held key: want OnWait called within %v, it was not", t.slack())
	}
	t.mustUnlock(l, "the holder")
	var mine *lock.Lease
	select {
	case mine = <-working:
	case err := <-done:
		t.fatalf("Do with a wait limit of %v, of a key that was freed: want a grant, got %v", longer, err)
	}
	t.idleFor(work * 3 / 4)
	s.refused(mine, other.Mutex(key), "a key whose holder has worked for longer than its wait limit")
	s.kept(<-done, "Do whose work takes longer than its wait limit")
	t.free(other, key, "after Do", t.slack())
}
