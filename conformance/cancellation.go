package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

var cancellationCases = []Case{
	{
		ID:     "cancellation/14-dead-context",
		Title:  "a context that has ended before: its error, and no effect on the service",
		Clause: "A request whose context has ended is not executed, or its outcome is unknown.",
		run:    deadContext,
	},
	{
		ID:     "cancellation/15-cancel-prompt",
		Title:  "a cancel in mid-wait is prompt, and its error says so",
		Clause: "All methods return soon after their context ends.",
		run:    cancelPrompt,
	},
	{
		ID:     "cancellation/15-leaves-no-place",
		Title:  "a cancelled waiter leaves no place in the queue: the next locker gets the freed key at once",
		Clause: "Nothing remains of an attempt that was given up and abandoned.",
		run:    cancelLeavesNoPlace,
	},
	{
		ID:     "cancellation/15-leaves-no-record",
		Title:  "a cancelled waiter leaves nothing stored at the service",
		Clause: "Nothing remains of an attempt that was given up and abandoned.",
		needs:  []need{hook("Leftovers", func(h *Harness) bool { return h.Leftovers != nil })},
		run:    cancelLeavesNoRecord,
	},
	{
		ID:     "cancellation/15-leaves-no-goroutine",
		Title:  "cancelled waits leave no goroutine",
		Clause: "Nothing remains of an attempt that was given up and abandoned.",
		alone:  true,
		run:    cancelLeavesNoGoroutine,
	},
	{
		ID:     "cancellation/15-link-context-error",
		Title:  "over a link that drops everything each method returns soon after its context ends, with the error of the context",
		Clause: "If a context ended the exchange, errors.Is finds its error beside the sentinel.",
		needs:  []need{needLink},
		run:    linkContextError,
	},
	{
		ID:     "cancellation/16-cancel-races-grant",
		Title:  "a cancel that races with the grant, whatever the delay: afterwards the key is free",
		Clause: "After Abandon a grant of that attempt, if there was one, is released.",
		alone:  true,
		run:    cancelRacesGrant,
	},
	{
		ID:     "cancellation/17-hold-outlives-context",
		Title:  "the end of the context given to Lock does not end the hold",
		Clause: "The context of TryAcquire and Acquire bounds the attempt and never the grant.",
		run:    holdOutlivesContext,
	},
	{
		ID:     "cancellation/17-wait-limit",
		Title:  "WithWait ends a wait in time, with an error that says so, and does not cut work that takes longer",
		Clause: "The context of TryAcquire and Acquire bounds the attempt and never the grant, also if it has a deadline.",
		run:    waitLimit,
	},
	{
		ID:     "cancellation/17-unlock-under-dead-context",
		Title:  "Unlock works under a context that has ended",
		Clause: "Unlock works under a context that has ended, and frees the key.",
		run:    unlockUnderDeadContext,
	},
}

func deadContext(t *T) {
	c := t.client()
	cancelled, cancel := context.WithCancel(t.ctx)
	cancel()
	expired, cancel2 := context.WithDeadline(t.ctx, time.Now().Add(-time.Second))
	defer cancel2()
	for _, ctx := range []context.Context{cancelled, expired} {
		key := t.key("dead-context")
		m := c.Mutex(key)
		for name, call := range map[string]func(context.Context) (*lock.Lease, error){"TryLock": m.TryLock, "Lock": m.Lock} {
			if l, err := call(ctx); !errors.Is(err, ctx.Err()) {
				t.errorf("%s with a context that has ended: want %v, got %v, %v", name, ctx.Err(), l, err)
			}
		}
		t.free(t.client(), key, "after a dead context", t.slack())

		raw := t.open()
		calls := map[string]func(context.Context, backend.Request) (backend.Grant, error){"TryAcquire": raw.TryAcquire}
		if w, ok := raw.(backend.Waiter); ok {
			calls["Acquire"] = w.Acquire
		}
		for name, call := range calls {
			key := t.key("dead-context-raw")
			req := request(key, t.longTTL())
			var g backend.Grant
			var err error
			t.within(t.slack(), "raw "+name+" with a context that has ended", func() { g, err = call(ctx, req) })
			switch {
			case err == nil && g == nil:
				t.errorf("raw %s with a context that has ended: it returned neither a grant nor an error", name)
			case err == nil:
				t.errorf("raw %s with a context that has ended: want %v, it was granted token %d", name, ctx.Err(), g.Token())
			case !errors.Is(err, ctx.Err()):
				t.errorf("raw %s with a context that has ended: want an error that matches %v, got %v", name, ctx.Err(), err)
			case errors.Is(err, backend.ErrUncertain):
				if err := raw.Abandon(t.ctx, req); err != nil {
					t.errorf("Abandon: want nil, got %v", err)
				}
			}
			if err != nil {
				t.free(c, key, "after raw "+name+" with a dead context", t.slack())
			}
		}
	}
}

// cancelPromptly is how soon a cancelled Lock returns: the core waits that long for
// the service's word that nothing remains.
const cancelPromptly = 250 * time.Millisecond

func cancelPrompt(t *T) {
	key := t.key("cancel")
	l := t.mustLock(t.client().Mutex(key), "a free key")
	w := t.waiter()
	why := errors.New("no longer needed")
	ctx, cancel := context.WithCancelCause(t.ctx)
	got := t.lockWaiting(ctx, w, key)
	cancel(why)
	end := t.end(cancelPromptly+t.slack(), "a cancelled Lock", got)
	switch {
	case end.err == nil:
		t.fatalf("a cancelled Lock: want an error, it was granted %s while another held", leaseText(end.lease))
	case !errors.Is(end.err, context.Canceled) || !errors.Is(end.err, why):
		t.errorf("a cancelled Lock: want context.Canceled and its cause, got %v", end.err)
	case !errors.Is(end.err, lock.ErrLocked):
		t.errorf("a cancelled Lock: want ErrLocked as well, since the key was held, got %v", end.err)
	}
	if err := l.Check(t.ctx); err != nil {
		t.errorf("the holder after a waiter was cancelled: want Check to say it holds, got %v", err)
	}
	t.mustUnlock(l, "the holder")
}

func cancelLeavesNoPlace(t *T) {
	key := t.key("no-place")
	holder, w, next := t.client(), t.waiter(), t.client()
	for round := range 5 {
		l := t.mustLock(holder.Mutex(key), "the key between two rounds")
		var ends []<-chan locked
		ctx, cancel := context.WithCancel(t.ctx)
		for range 4 {
			ends = append(ends, t.lockWaiting(ctx, w, key))
		}
		cancel()
		for _, end := range ends {
			if got := t.end(cancelPromptly+t.slack(), "a cancelled Lock", end); !errors.Is(got.err, context.Canceled) {
				t.fatalf("a cancelled Lock: want context.Canceled, got %v", got.err)
			}
		}
		t.mustUnlock(l, "the holder")
		t.free(next, key, fmt.Sprintf("round %d, after 4 cancelled waits and a release (TTL %v)", round, t.longTTL()), t.slack())
	}
}

func cancelLeavesNoRecord(t *T) {
	key := t.key("no-record")
	l := t.mustLock(t.client().Mutex(key), "a free key")
	w := t.waiter()
	ctx, cancel := context.WithCancel(t.ctx)
	got := t.lockWaiting(ctx, w, key)
	cancel()
	t.end(cancelPromptly+t.slack(), "a cancelled Lock", got)
	t.mustUnlock(l, "the holder")
	t.eventually(t.slack(), "what the service stores for a key without holder and waiters", func() error {
		left, err := t.h.Leftovers(t.ctx, key)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("want nothing, got %q", left)
		}
		return err
	})
}

// goroutines counts the goroutines except for those of a conformancelink.Link and OwnGoroutines of the harness.
func (t *T) goroutines() int {
	own := append([]string{"/conformance/conformancelink."}, t.h.OwnGoroutines...)
	n := 0
	for _, stack := range strings.Split(stacks(), "\n\n") {
		if !slices.ContainsFunc(own, func(s string) bool { return strings.Contains(stack, s) }) {
			n++
		}
	}
	return n
}

// others is how many goroutines may come meanwhile that are not the driver's: a client
// of the harness connects again after a restart. A leak is of ten at least, since what
// is looked at is done ten times and more.
const others = 9

// goroutinesBack waits until there are no more goroutines than before.
func (t *T) goroutinesBack(before int, what string) {
	t.eventually(t.slack(), what, func() error {
		if n := t.goroutines(); n > before {
			return fmt.Errorf("want at most %d goroutines, as before, got %d:\n%s", before, n, stacks())
		}
		return nil
	})
}

func cancelLeavesNoGoroutine(t *T) {
	const n = 50
	key := t.key("no-goroutine")
	l := t.mustLock(t.client().Mutex(key), "a free key")
	w := t.waiter()
	wait := func(n int) {
		ctx, cancel := context.WithCancel(t.ctx)
		var ends []<-chan locked
		for range n {
			ends = append(ends, t.lockWaiting(ctx, w, key))
		}
		cancel()
		for _, end := range ends {
			t.end(cancelPromptly+t.slack(), "a cancelled Lock", end)
		}
	}
	wait(n) // fills pools of connections
	before := t.goroutines() + others
	wait(n)
	t.goroutinesBack(before, fmt.Sprintf("goroutines after %d cancelled waits", n))
	t.mustUnlock(l, "the holder")
}

func cancelRacesGrant(t *T) {
	key := t.key("race")
	holder, w, next := t.client(), t.client(), t.client()

	// An uncontended cycle says which delays are interesting: the shortest of some, since one may be slow.
	cycle := t.slack()
	for range 3 {
		start := time.Now()
		t.mustUnlock(t.mustLock(holder.Mutex(key), "a free key"), "the holder")
		cycle = min(cycle, max(time.Since(start), 20*time.Microsecond))
	}

	var grants, cancels int
	n := t.rounds(200, 2000)
	for i := range n {
		delay := cycle * 2 * time.Duration(i%100) / 100
		ctx, cancel := context.WithCancel(t.ctx)
		contended := i%2 == 0
		var wg sync.WaitGroup
		if contended {
			l := t.mustLock(holder.Mutex(key), "the key between two rounds")
			got := t.lockAsync(ctx, w.Mutex(key))
			spin(cycle) // on its way into the queue, or in it
			wg.Go(func() {
				if err := l.Unlock(t.ctx); err != nil {
					t.errorf("round %d: Unlock: want nil, got %v", i, err)
				}
			})
			spin(delay)
			cancel()
			t.raced(got, &grants, &cancels, i)
		} else {
			got := t.lockAsync(ctx, w.Mutex(key))
			spin(delay)
			cancel()
			t.raced(got, &grants, &cancels, i)
		}
		wg.Wait()
		t.free(next, key, fmt.Sprintf("round %d of %d, a cancel %v after the release or the call (TTL %v)", i, n, delay, t.longTTL()), t.slack())
	}
	t.notef("%d granted, %d cancelled", grants, cancels)
}

func (t *T) raced(ch <-chan locked, grants, cancels *int, round int) {
	got := t.end(cancelPromptly+t.slack(), fmt.Sprintf("round %d: a Lock that was cancelled", round), ch)
	switch {
	case got.err == nil:
		*grants++
		t.mustUnlock(got.lease, "a grant that won the race")
	case errors.Is(got.err, context.Canceled):
		*cancels++
	default:
		t.fatalf("round %d: a Lock that was cancelled: want a grant or context.Canceled, got %v", round, got.err)
	}
}

func holdOutlivesContext(t *T) {
	ttl := t.clampTTL(3 * t.ttl()) // it bounds TryLock, too
	other := t.client()
	for _, wait := range []bool{false, true} {
		key, s := t.key("outlives"), t.steady(ttl)
		ctx, cancel := context.WithCancel(t.ctx)
		var l *lock.Lease
		if wait {
			first := t.mustLock(other.Mutex(key), "a free key")
			got := t.lockWaiting(ctx, s.waiter, key)
			t.mustUnlock(first, "the holder")
			l = t.granted(t.slack(), "the waiter", got).lease
		} else {
			var err error
			l, err = s.c.Mutex(key).TryLock(ctx)
			s.kept(err, "the grant of a free key")
		}
		cancel()
		t.idleFor(ttl * 3 / 2) // so that it is renewed after the cancel
		s.held(l, "a lease whose acquire context was cancelled")
		s.refused(l, other.Mutex(key), "a key whose holder's acquire context was cancelled")
		s.unlock(l, "the holder")
	}
}

func unlockUnderDeadContext(t *T) {
	c, other := t.client(), t.client()
	key := t.key("dead-unlock")
	l := t.mustLock(c.Mutex(key), "a free key")
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	if err := l.Unlock(ctx); err != nil {
		t.errorf("Unlock under a cancelled context: want nil, got %v", err)
	}
	t.free(other, key, "after an Unlock under a cancelled context", t.slack())
}
