package queue_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue/queuetest"
)

// TestHistory runs clients of several processes for a virtual hour under random faults: what they believe to hold never
// conflicts, a token is never used twice, and the key is free in the end.
func TestHistory(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) { history(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

type held struct {
	share backend.Share
	until time.Time
}

type record struct {
	mu     sync.Mutex
	held   map[backend.Grant]held
	tokens map[uint64]bool
	grants int
}

func (r *record) begins(t *testing.T, g backend.Grant, s backend.Share) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, beside := time.Now(), []backend.Share{}
	for _, h := range r.held {
		if h.until.After(now) {
			beside = append(beside, h.share)
		}
	}
	if g.Until().After(now) && !s.Fits(beside) {
		t.Errorf("two holders: %v was granted beside %v", s, beside)
	}
	if r.tokens[g.Token()] {
		t.Errorf("token %d was granted twice", g.Token())
	}
	r.tokens[g.Token()] = true
	r.held[g] = held{s, g.Until()}
	r.grants++
}

func (r *record) renewed(g backend.Grant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[g] = held{r.held[g].share, g.Until()}
}

func (r *record) ends(g backend.Grant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, g)
}

func history(t *testing.T, rnd *rand.Rand) {
	s, r := queuetest.NewServer(), &record{held: map[backend.Grant]held{}, tokens: map[uint64]bool{}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	var all sync.WaitGroup
	for range 4 {
		p := start(t, s)
		faults := rand.New(rand.NewPCG(rnd.Uint64(), 2))
		all.Go(func() { faulty(ctx, p, faults) })
		for range 3 {
			own := rand.New(rand.NewPCG(rnd.Uint64(), 3))
			all.Go(func() {
				for ctx.Err() == nil {
					p.turn(t, ctx, own, r)
				}
			})
		}
	}
	all.Wait()
	if r.grants < 100 {
		t.Errorf("grants in an hour: want more than 100, got %d", r.grants)
	}
	last := start(t, s)
	release(t, last.lock(t, backend.Share{}, 2*ttl))
	time.Sleep(time.Minute) // what is on its way arrives
}

// faulty makes faults of a process come and go.
func faulty(ctx context.Context, p process, rnd *rand.Rand) {
	for ctx.Err() == nil {
		var f queuetest.Faults
		switch rnd.IntN(6) {
		case 0:
			f.Delay = rand.N(2 * time.Second)
		case 1:
			f.LoseReplies = true
		case 2:
			f.LoseEvents = true
		case 3:
			f = queuetest.Faults{LoseRequests: true, LoseEvents: true}
		case 4:
			p.svc.Disconnect()
		}
		p.svc.SetFaults(f)
		sleep(ctx, time.Duration(rnd.IntN(8000))*time.Millisecond)
		p.svc.SetFaults(queuetest.Faults{})
		p.svc.Connect()
		sleep(ctx, time.Duration(rnd.IntN(30000))*time.Millisecond)
	}
	p.svc.SetFaults(queuetest.Faults{})
	p.svc.Connect()
}

// turn acquires the key, holds it for a while, and releases it.
func (p process) turn(t *testing.T, ctx context.Context, rnd *rand.Rand, r *record) {
	share := []backend.Share{{}, {}, backend.Reader, {Weight: 1, Capacity: 3}, {Weight: 2, Capacity: 3}}[rnd.IntN(5)]
	req := request(share)
	req.TTL = time.Duration(2+rnd.IntN(8)) * time.Second
	within, cancel := context.WithTimeout(ctx, time.Duration(rnd.IntN(60_000))*time.Millisecond)
	defer cancel()
	g, err := p.Acquire(within, req)
	if err != nil {
		for backend.OutcomeUnknown(err) && p.Abandon(context.Background(), req) != nil {
			time.Sleep(time.Second)
		}
		sleep(ctx, 100*time.Millisecond)
		return
	}
	r.begins(t, g, share)
	for range rnd.IntN(4) {
		sleep(ctx, min(req.TTL/3, time.Until(g.Until())/2))
		if g.Renew(context.Background(), req.TTL) == nil {
			r.renewed(g)
		}
	}
	r.ends(g)
	for range 100 {
		if err := g.Release(context.Background()); err == nil || !backend.OutcomeUnknown(err) {
			return
		}
		time.Sleep(time.Second)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
