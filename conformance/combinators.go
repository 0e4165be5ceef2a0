package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/elect"
)

var combinatorCases = []Case{
	{
		ID:     "combinators/41-all-opposite-order",
		Title:  "clients that lock the same names in opposite order all get them, one at a time",
		Clause: "A grant concerns one key only, so clients that take keys in one order never wait in a cycle.",
		run:    allOppositeOrder,
	},
	{
		ID:     "combinators/41-all-or-nothing",
		Title:  "if one of several locks is held, all are refused, or waited for until one deadline, and nothing of them remains",
		Clause: "Release frees the key before it returns, and nothing remains of an attempt that was given up.",
		run:    allOrNothing,
	},
	{
		ID:     "combinators/41-one-lost-part",
		Title:  "a lease of several locks ends before another client gets one of them; the other locks stay held until it is unlocked",
		Clause: beforeClause,
		run:    oneLostPart,
	},
	{
		ID:     "combinators/42-election-resign",
		Title:  "one leader at a time; when it resigns the next leads at once",
		Clause: "Release frees the key before it returns, and the next waiter is served.",
		run:    electionResign,
	},
	{
		ID:     "combinators/42-election-loss",
		Title:  "a leader that cannot renew finds its context ended before the next leads, and leads again later",
		Clause: beforeClause,
		needs:  []need{needTTL},
		run:    electionLoss,
	},
	{
		ID:     "combinators/42-election-kill",
		Title:  "when the leader's process is killed, another leads",
		Clause: "A killed holder's key is free within its bound.",
		needs:  []need{needWorker},
		run:    electionKill,
	},
	{
		ID:     "combinators/42-leader-seen",
		Title:  "other clients see the leader, and that there is none",
		Clause: "Inspect returns the holder with its metadata, and no holder if the key is free.",
		needs:  []need{needInspect},
		run:    leaderSeen,
	},
}

func allOppositeOrder(t *T) {
	a, b, c := t.key("all-a"), t.key("all-b"), t.key("all-c")
	// Bounded by far more than it takes, and by less than the TTL that would end a circle.
	ctx, cancel := context.WithTimeout(t.ctx, t.longTTL()/5)
	defer cancel()
	var r room
	var all sync.WaitGroup
	start := make(chan struct{})
	for i, order := range [][]string{{a, b, c}, {c, b, a}, {b, c, a}} {
		client := t.client()
		var ms []lock.Mutex
		for _, key := range order {
			ms = append(ms, client.Mutex(key))
		}
		m := lock.All(ms...)
		all.Go(func() {
			<-start
			for turn := range t.rounds(5, 50) {
				l, err := m.Lock(ctx)
				if err != nil {
					t.errorf("client %d, turn %d: want all of three locks that others take in another order, got %v", i, turn, err)
					return
				}
				r.visit(func() { time.Sleep(time.Millisecond) }) // the work
				if err := l.Unlock(t.ctx); err != nil {
					t.errorf("client %d, turn %d: want Unlock to return nil, got %v", i, turn, err)
				}
			}
		})
	}
	close(start)
	all.Wait()
	r.verify(t, int64(3*t.rounds(5, 50)))
}

func allOrNothing(t *T) {
	a, b, c := t.key("all-a"), t.key("all-b"), t.key("all-c")
	holder, client, other := t.client(), t.client(), t.client()
	l := t.mustLock(holder.Mutex(b), "a free key")
	m := lock.All(client.Mutex(c), client.Mutex(b), client.Mutex(a))
	what := "after an attempt at three locks of which the second was held"

	t.refused(m, "three locks of which the second is held")
	t.free(other, a, what, t.slack())

	const wait = 200 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.ctx, wait)
	defer cancel()
	got := t.end(wait+t.slack(), fmt.Sprintf("Lock of three locks with %v to wait", wait), t.lockAsync(ctx, m))
	if !errors.Is(got.err, context.DeadlineExceeded) {
		t.fatalf("Lock of three locks of which the second stays held: want DeadlineExceeded, got %v", got.err)
	}
	for _, key := range []string{a, c} {
		t.free(other, key, what, t.slack())
	}
	t.mustUnlock(l, "the holder")
	t.free(other, b, "after a wait for it was given up", t.slack())

	whole := t.mustLock(m, "three locks that are free")
	for _, key := range []string{a, b, c} {
		t.refused(other.Mutex(key), "one of three that are held together")
	}
	t.mustUnlock(whole, "the lease of three locks")
	for _, key := range []string{a, b, c} {
		t.free(other, key, "after the lease of three was unlocked", t.slack())
	}
}

func oneLostPart(t *T) {
	a, b := t.key("all-a"), t.key("all-b")
	client, other := t.client(), t.client()
	ttl := t.ttl()
	l := t.mustLock(lock.All(client.Mutex(a), client.Mutex(b, lock.WithTTL(ttl), lock.WithoutRenewal())), "two free keys")
	next := t.granted(ttl+t.slack(), "the part that is not renewed", t.lockAsync(t.ctx, other.Mutex(b)))
	if l.Err() == nil { // it looks at the clock itself, later than the grant
		t.errorf("a lease of two locks, one of which was granted to another: want it over, it is trusted until %s (granted %s)", clock(l.Expires()), clock(next.at))
	}
	select {
	case <-l.Done():
	case <-time.After(t.slack()):
		t.fatalf("a lease of two locks, one of which is lost: want its context ended within %v, it was not", t.slack())
	}
	if cause := context.Cause(l.Context()); !errors.Is(cause, lock.ErrLost) {
		t.errorf("a lease of two locks, one of which is lost: want the cause ErrLost, got %v", cause)
	}
	t.refused(other.Mutex(a), "the other part, until Unlock")
	if err := l.Unlock(t.ctx); !errors.Is(err, lock.ErrLost) {
		t.errorf("Unlock of a lease of which one part is lost: want ErrLost, got %v", err)
	}
	t.free(other, a, "the other part after Unlock", t.slack())
	t.refused(t.client().Mutex(b), "the lost part, which its successor holds")
	t.mustUnlock(next.lease, "the successor of the lost part")
}

// campaign runs a candidate in a goroutine of its own.
func (t *T) campaign(ctx context.Context, m lock.Mutex, lead func(context.Context) error) <-chan error {
	end := make(chan error, 1)
	go func() {
		end <- elect.Campaign(ctx, m, lead, elect.WithBackoff(10*time.Millisecond, 100*time.Millisecond))
	}()
	return end
}

// elected waits for the end of a campaign that must return nil.
func (t *T) elected(d time.Duration, what string, end <-chan error) {
	if err := await(t, d, what, "the end of its campaign", end); err != nil {
		t.fatalf("%s: want its campaign to end with nil, got %v", what, err)
	}
}

func electionResign(t *T) {
	key := t.key("election")
	const candidates, terms = 3, 3
	var r room
	var ends []<-chan error
	for range candidates {
		left := terms
		ends = append(ends, t.campaign(t.ctx, t.client().Mutex(key), func(ctx context.Context) error {
			r.visit(func() { time.Sleep(time.Millisecond) }) // the term
			if left--; left > 0 {
				return elect.ErrResign
			}
			return nil
		}))
	}
	for i, end := range ends {
		// the TTL is minutes: who waits for it does not come in time
		t.elected(time.Duration(candidates*terms)*t.slack(), fmt.Sprintf("candidate %d of %d", i, candidates), end)
	}
	r.verify(t, candidates*terms)
	t.free(t.client(), key, "after all have resigned", t.slack())
}

func electionLoss(t *T) {
	key, ttl := t.key("election"), t.lossTTL()
	tm := t.tamper()
	first := t.clientOf(tm.backend(), lock.WithTTL(ttl))
	leads := make(chan context.Context, 2)
	terms := 0
	end := t.campaign(t.ctx, first.Mutex(key), func(ctx context.Context) error {
		leads <- ctx
		if terms++; terms == 2 {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	})
	leader := await(t, t.slack(), "the only candidate", "a term", leads)
	next := t.campaign(t.ctx, t.client(lock.WithTTL(ttl)).Mutex(key), func(context.Context) error {
		if leader.Err() == nil {
			t.errorf("a leader that could not renew for its TTL of %v: want its context ended before the next leads, it was not", ttl)
		}
		tm.failRenew.Store(false)
		return nil
	})
	tm.failRenew.Store(true)
	t.elected(2*ttl+t.slack(), "the next after a leader that could not renew", next)
	if cause := context.Cause(leader); !errors.Is(cause, lock.ErrLost) {
		t.errorf("a leader that could not renew: want its context ended with the cause ErrLost, got %v", cause)
	}
	await(t, ttl+t.slack(), "the first leader, again", "a term", leads)
	t.elected(t.slack(), "the first leader, again", end)
}

func electionKill(t *T) {
	key := t.key("election")
	p := t.worker()
	p.lock(key, t.ttl())
	led := make(chan struct{})
	end := t.campaign(t.ctx, t.client().Mutex(key), func(context.Context) error { close(led); return nil })
	p.kill()
	t.elected(t.deathBound(t.ttl()), "the next after the leader's process was killed", end)
	select {
	case <-led:
	default:
		t.errorf("the next after the leader's process was killed: want it to lead, its campaign ended without")
	}
}

func leaderSeen(t *T) {
	key := t.key("election")
	m := t.client().Mutex(key)
	seen := func(what, want string) {
		t.eventually(t.slack(), what, func() error {
			h, err := elect.Leader(t.ctx, m)
			switch {
			case err != nil:
				return err
			case h == nil && want != "", h != nil && h.Metadata != want:
				return fmt.Errorf("want %q, got %+v", want, h)
			}
			return nil
		})
	}
	seen("the leader before any campaign", "")
	for _, name := range []string{"one:80", "two:80"} {
		stop := make(chan struct{})
		end := t.campaign(t.ctx, t.client(lock.WithMetadata(name)).Mutex(key), func(context.Context) error { <-stop; return nil })
		seen("the leader during a term", name)
		close(stop)
		t.elected(2*t.slack(), "a leader that resigns", end)
		seen("the leader after it has resigned", "")
	}
}
