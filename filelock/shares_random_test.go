//go:build unix

package filelock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
)

// Clients acquire shares, downgrade, give up and are cancelled at random: what is held at a time
// fits, slots are distinct, tokens rise, nothing remains.
func TestSharesAtRandom(t *testing.T) {
	for _, shares := range [][]backend.Share{
		{backend.Reader, backend.Reader, backend.Share{}},
		{permits(1, 4), permits(2, 4), permits(3, 4), backend.Share{}},
	} {
		dir := t.TempDir()
		var held weights
		var wg sync.WaitGroup
		bs := []*Backend{open1(t, dir), open1(t, dir), open1(t, dir)}
		for i := range 9 {
			wg.Go(func() {
				for range 12 {
					atRandom(t, bs[i%len(bs)], &held, shares[rand.IntN(len(shares))])
				}
			})
		}
		wg.Wait()
		for _, b := range bs {
			wantNoTickets(t, b, "k")
		}
	}
}

func atRandom(t *testing.T, b *Backend, held *weights, s backend.Share) {
	req := request("k")
	req.Share = s
	req.OnLost = func(err error) { t.Errorf("a loss was reported: %v", err) }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if rand.IntN(3) == 0 {
		ctx, cancel = context.WithTimeout(t.Context(), rand.N(5*time.Millisecond))
		defer cancel()
	}
	acquire := b.Acquire
	if rand.IntN(4) == 0 {
		acquire = b.TryAcquire
	}
	before := held.token.Load()
	g, err := acquire(ctx, req)
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, backend.ErrLocked) {
			t.Errorf("share %v: %v", s, err)
		}
		return
	}
	if g.Token() <= before {
		t.Errorf("share %v: token %d of a request after a grant with %d", s, g.Token(), before)
	}
	for last := held.token.Load(); g.Token() > last && !held.token.CompareAndSwap(last, g.Token()); last = held.token.Load() {
	}
	slots := g.(backend.SlotHolder).Slots()
	held.enter(t, s, slots)
	time.Sleep(rand.N(200 * time.Microsecond)) // the work
	if s.Exclusive() && rand.IntN(2) == 0 {
		held.leave(s, nil)
		s = backend.Reader
		if err := g.(backend.Downgrader).Downgrade(t.Context()); err == nil {
			held.enter(t, s, nil)
		} else if errors.Is(err, backend.ErrInvalid) {
			s = backend.Share{}
			held.enter(t, s, nil)
		} else {
			t.Error(err)
		}
	}
	held.leave(s, slots)
	if err := g.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// weights are what is held at the same time.
type weights struct {
	weight atomic.Int64
	slot   [backend.MaxPermits]atomic.Int64
	token  atomic.Uint64
}

func (w *weights) enter(t *testing.T, s backend.Share, slots []int) {
	n := int64(s.Weight)
	if s.Exclusive() {
		n = 1 << 20
	}
	if sum := w.weight.Add(n); sum > n && (s.Exclusive() || sum >= 1<<20 || s.Capacity > 0 && sum > int64(s.Capacity)) {
		t.Errorf("granted %v beside a weight of %d", s, sum-n)
	}
	if s.Capacity > 0 && len(slots) != s.Weight || s.Capacity == 0 && slots != nil {
		t.Errorf("the share %v has the slots %v", s, slots)
	}
	for _, i := range slots {
		if w.slot[i].Add(1) > 1 {
			t.Errorf("slot %d has two holders", i)
		}
	}
}

func (w *weights) leave(s backend.Share, slots []int) {
	for _, i := range slots {
		w.slot[i].Add(-1)
	}
	if s.Exclusive() {
		w.weight.Add(-1 << 20)
	} else {
		w.weight.Add(-int64(s.Weight))
	}
}

// Processes with shares are killed at random moments, and nothing stalls.
func TestSharesOfKilledProcesses(t *testing.T) {
	for _, s := range []backend.Share{backend.Reader, permits(2, 3)} {
		dir := t.TempDir()
		b := open1(t, dir)
		for i := range 8 {
			p := start(t, "churn", dir, "k", fmt.Sprint(s.Weight), fmt.Sprint(s.Capacity))
			p.expect(t, "begun")
			outs := []chan outcome{make(chan outcome, 1), make(chan outcome, 1)}
			for j, out := range outs {
				go func() {
					req := request("k")
					if j == 0 {
						req.Share = s
					}
					g, err := b.Acquire(t.Context(), req)
					if err == nil {
						err = g.Release(t.Context())
					}
					out <- outcome{g, err}
				}()
			}
			time.Sleep(time.Duration(i*137) * time.Microsecond) // a sweep, not a wait
			p.kill()
			for _, out := range outs {
				served(t, out)
			}
		}
		release(t, try(t, b, "k"))
		wantNoTickets(t, b, "k")
	}
}
