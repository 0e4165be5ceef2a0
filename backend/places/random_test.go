package places_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places"
	"github.com/interlock-go/lock/backend/places/placestest"
)

var rounds = flag.Int("rounds", 10, "of TestRandom")

// believed are the grants that their holders trust.
type believed struct {
	mu    sync.Mutex
	order []*belief
}

type belief struct {
	share backend.Share
	token uint64
	slots []int
	grant backend.Grant
}

// begin adds a grant, and returns an error if it contradicts those that are held: trust that has ended counts no more.
func (b *believed) begin(g backend.Grant, share backend.Share) (*belief, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := &belief{share: share, token: g.Token(), slots: g.(backend.SlotHolder).Slots(), grant: g}
	var held []backend.Share
	for _, o := range b.order {
		if !o.grant.Until().After(time.Now()) {
			continue
		}
		held = append(held, o.share)
		for _, slot := range one.slots {
			for _, taken := range o.slots {
				if slot == taken {
					return one, fmt.Errorf("slot %d has two holders, tokens %d and %d", slot, o.token, one.token)
				}
			}
		}
	}
	b.order = append(b.order, one)
	if !share.Fits(held) {
		return one, fmt.Errorf("%v with token %d beside %v", share, one.token, held)
	}
	if len(one.slots) != share.Weight && share.Capacity > 0 {
		return one, fmt.Errorf("slots %v of %v", one.slots, share)
	}
	return one, nil
}

func (b *believed) end(one *belief) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, o := range b.order {
		if o == one {
			b.order = append(b.order[:i:i], b.order[i+1:]...)
			return
		}
	}
}

// TestRandom lets workers of some processes acquire, give up and hold at random, while requests are lost or come late,
// watches are interrupted, and processes are cut off for longer than their sessions last. At no time do two holders that
// trust their grants exclude each other, and in the end every key is free.
func TestRandom(t *testing.T) {
	for range *rounds {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, s *placestest.Server) { random(t, s, seed) })
		})
		if t.Failed() {
			return
		}
	}
}

func random(t *testing.T, s *placestest.Server, seed uint64) {
	const capacity = 3
	r := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex // guards r
	pick := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return r.IntN(n)
	}
	s.Jitter, s.WatchChecks = 20*time.Millisecond, seed%2 == 0
	var ps []*process
	for range 3 {
		p := open(t, s)
		p.svc.Inject(func(method string) placestest.Fault {
			if pick(15) > 0 || method == "Close" {
				return placestest.None
			}
			return placestest.Fault(1 + pick(4))
		})
		ps = append(ps, p)
	}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	var held believed
	grants := 0
	var all sync.WaitGroup
	for i := range 21 {
		all.Go(func() {
			p := ps[i%3]
			for ctx.Err() == nil {
				share := []backend.Share{{}, backend.Reader, {Weight: 1 + pick(2), Capacity: capacity}}[pick(3)]
				req := request(share)
				limited, cancel := context.WithTimeout(ctx, time.Duration(1+pick(60_000))*time.Millisecond)
				call := p.Acquire
				if pick(4) == 0 {
					call = p.TryAcquire
				}
				g, err := call(limited, req)
				cancel()
				if err != nil {
					if backend.OutcomeUnknown(err) {
						abandon(t, p, req)
					}
					time.Sleep(time.Duration(pick(100)) * time.Millisecond)
					continue
				}
				one, err := held.begin(g, share)
				if err != nil {
					t.Error(err)
					stop()
				}
				mu.Lock()
				grants++
				mu.Unlock()
				time.Sleep(time.Duration(pick(500)) * time.Millisecond)
				if share.Exclusive() && pick(3) == 0 {
					held.end(one) // it may be a reader from now on, also if there is an error
					if one, err = held.begin(g, backend.Reader); err != nil {
						t.Errorf("before a downgrade: %v", err)
					}
					_ = g.(backend.Downgrader).Downgrade(ctx)
					time.Sleep(time.Duration(pick(500)) * time.Millisecond)
				}
				held.end(one)
				for g.Release(context.WithoutCancel(ctx)) != nil && !errors.Is(g.Release(context.WithoutCancel(ctx)), backend.ErrLost) {
					time.Sleep(100 * time.Millisecond)
				}
			}
		})
	}
	all.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(time.Duration(pick(20_000)) * time.Millisecond)
			p := ps[pick(3)]
			switch pick(4) {
			case 0:
				s.Interrupt()
			case 1:
				p.svc.Deliver()
			case 2:
				p.svc.Cut(true)
				time.Sleep(time.Duration(pick(60_000)) * time.Millisecond)
				p.svc.Cut(false)
			case 3:
				if q := s.Queue(key); len(q.Places) > q.Holders() {
					s.Delete(q.Places[len(q.Places)-1].Owner) // of a waiter
				}
			}
		}
	})
	all.Wait()
	for _, p := range ps {
		p.svc.Inject(nil)
		p.svc.Deliver()
	}
	time.Sleep(3 * ttl)
	free(t, s)
	if grants < 300 {
		t.Errorf("%d grants", grants)
	}
}

func abandon(t *testing.T, p *process, req backend.Request) {
	t.Helper()
	for p.Abandon(context.WithoutCancel(t.Context()), req) != nil {
		time.Sleep(100 * time.Millisecond)
	}
}

var _ places.Service = (*placestest.Client)(nil)
