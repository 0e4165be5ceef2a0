package record_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/record"
)

// faulty is a service over a bad network: requests take time, get lost, lose their replies, and arrive late.
type faulty struct {
	*watching
	mu  sync.Mutex // guards rng
	rng *rand.Rand
}

func (f *faulty) n(n int64) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rng.Int64N(n)
}

// fault waits for the time of one way, and returns what happens to a request: for 0 of 100 it is lost, and so on.
func (f *faulty) fault(ctx context.Context) (int64, error) {
	select {
	case <-time.After(time.Duration(f.n(int64(20 * time.Millisecond)))):
		return f.n(100), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (f *faulty) Read(ctx context.Context, key string) (record.Item, error) {
	if n, err := f.fault(ctx); err != nil || n < 3 {
		return record.Item{}, errors.Join(errNoReply, err)
	}
	item, _ := f.watching.Read(ctx, key)
	if n, err := f.fault(ctx); err != nil || n < 3 {
		return record.Item{}, errors.Join(errNoReply, err)
	}
	return item, nil
}

func (f *faulty) Write(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	n, err := f.fault(ctx)
	switch {
	case err != nil || n < 3:
		return "", errors.Join(errNoReply, err)
	case n < 6:
		late := time.Duration(f.n(int64(10 * time.Second)))
		go func() {
			time.Sleep(late)
			_, _ = f.watching.Write(context.WithoutCancel(ctx), key, value, version, ttl)
		}()
		return "", errNoReply
	}
	written, err := f.watching.Write(ctx, key, value, version, ttl)
	if n, end := f.fault(ctx); end != nil || n < 3 {
		return "", errors.Join(errNoReply, end)
	}
	return written, err
}

// history is what all clients together hold.
type history struct {
	mu     sync.Mutex
	t      *testing.T
	holds  map[backend.Grant]string
	token  uint64
	grants int
	waited time.Duration // the longest wait for a grant
}

// granted fails if another client trusts a grant.
func (h *history) granted(g backend.Grant, owner string, waited time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waited = max(h.waited, waited)
	for other, name := range h.holds {
		if other.Until().After(time.Now()) {
			h.t.Errorf("%s is granted the lock, which %s holds for another %v", owner, name, time.Until(other.Until()))
		}
	}
	if g.Token() <= h.token {
		h.t.Errorf("%s: token %d after %d", owner, g.Token(), h.token)
	}
	h.token = g.Token()
	if g.Until().After(time.Now()) {
		h.grants++
		h.holds[g] = owner
	}
}

func (h *history) ended(g backend.Grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.holds, g)
}

// worker is one of a process.
type worker struct {
	f    *faulty
	q    *record.Queue
	h    *history
	name string
	dead context.Context // or the end of the test
}

// again repeats a request until it has an answer, or the process dies.
func (w *worker) again(request func(context.Context) error) error {
	for {
		ctx, cancel := context.WithTimeout(w.dead, time.Second)
		err := request(ctx)
		cancel()
		if err == nil || errors.Is(err, backend.ErrLost) || w.dead.Err() != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (w *worker) work() {
	for i := 0; w.dead.Err() == nil; i++ {
		time.Sleep(time.Duration(w.f.n(int64(200 * time.Millisecond))))
		w.lock(fmt.Sprint(w.name, " ", i, " ", w.f.n(1<<40)))
	}
}

func (w *worker) lock(owner string) {
	req := request(owner)
	req.TTL = 3 * time.Second
	ctx, cancel := context.WithTimeout(w.dead, time.Duration(1+w.f.n(int64(time.Minute))))
	defer cancel()
	began := time.Now()
	acquire := w.q.Acquire
	if w.f.n(4) == 0 {
		acquire = w.q.Locks.TryAcquire
	}
	g, err := acquire(ctx, req)
	if err != nil {
		if backend.OutcomeUnknown(err) {
			_ = w.again(func(ctx context.Context) error { return w.q.Locks.Abandon(ctx, req) })
		}
		return
	}
	w.h.granted(g, owner, time.Since(began))
	for range w.f.n(4) {
		time.Sleep(time.Duration(w.f.n(int64(time.Second))))
		ctx, cancel := context.WithTimeout(w.dead, 500*time.Millisecond)
		err := g.Renew(ctx, req.TTL)
		cancel()
		if errors.Is(err, backend.ErrLost) && time.Until(g.Until()) > 0 {
			w.h.t.Errorf("%s: lost %v before its end", owner, time.Until(g.Until()))
		}
	}
	if w.dead.Err() != nil {
		return // it holds on
	}
	w.h.ended(g) // it is not trusted from when the release is sent
	_ = w.again(g.Release)
}

// Processes that wait, try, give up, die and lose requests: no two hold the lock, tokens rise, no lease that is trusted is
// lost, and the lock is free in the end.
func TestRandom(t *testing.T) {
	for range 3 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { random(t, seed) })
		})
	}
}

func random(t *testing.T, seed uint64) {
	f := &faulty{watching: newWatching(), rng: rand.New(rand.NewPCG(seed, 1))}
	h := &history{t: t, holds: map[backend.Grant]string{}}
	test, end := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range 5 {
		all.Go(func() {
			for life := 0; test.Err() == nil; life++ {
				dead, die := context.WithTimeout(test, time.Duration(f.n(int64(2*time.Minute))))
				w := &worker{f: f, h: h, name: fmt.Sprint("p", i, ".", life), dead: dead}
				if w.q = polling(f.watching); i%2 == 0 {
					w.q = queue(f.watching)
				}
				w.q.Locks = record.New(f, record.Options{})
				var threads sync.WaitGroup
				for range 1 + f.n(3) {
					threads.Go(w.work)
				}
				threads.Wait()
				die()
			}
		})
	}
	time.Sleep(5 * time.Minute)
	end()
	all.Wait()
	time.Sleep(10 * time.Second) // late requests
	g, err := queue(f.watching).Acquire(t.Context(), request("last"))
	nothing(t, err)
	nothing(t, g.Release(t.Context()))
	t.Logf("%d grants, the longest wait was %v", h.grants, h.waited)
	if h.grants < 100 {
		t.Errorf("%d grants: the test shows nothing", h.grants)
	}
}
