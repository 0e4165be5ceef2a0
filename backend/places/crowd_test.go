package places_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places/placestest"
)

// TestCrowd: no attempt waits for an event that has been, whatever the order of replies and events.
func TestCrowd(t *testing.T) {
	for range 5 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, s *placestest.Server) { crowd(t, s, seed) })
		})
	}
}

func crowd(t *testing.T, s *placestest.Server, seed uint64) {
	const processes, workers, cycles = 5, 50, 20
	s.Jitter = 20 * time.Millisecond
	var ps []*process
	for range processes {
		ps = append(ps, open(t, s))
	}
	r := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex // guards r
	share := func() backend.Share {
		mu.Lock()
		defer mu.Unlock()
		return []backend.Share{{}, {}, backend.Reader, {Weight: 1 + r.IntN(2), Capacity: 3}}[r.IntN(4)]
	}
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			for range cycles {
				ctx, cancel := context.WithTimeout(t.Context(), ttl)
				g, err := ps[i%processes].Acquire(ctx, request(share()))
				cancel()
				if err != nil {
					t.Error(err)
					return
				}
				release(t, g)
			}
		})
	}
	all.Wait()
	free(t, s)
}
