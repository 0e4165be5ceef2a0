package elect_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/elect"
	"github.com/interlock-go/lock/memlock"
)

// Four nodes lose leases and resign for an hour: there are never two leaders, there is
// a leader most of the time, and each node leads at some time.
func TestCampaignOneLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var mu sync.Mutex
		leader, losses, terms, led := context.Context(nil), 0, map[int]int{}, time.Duration(0)
		var all sync.WaitGroup
		for i := range 4 {
			b := newService(t, space)
			b.setFail(func(op string, _ int) error { // renewals fail for six seconds of each half minute
				if op == "renew" && time.Now().Unix()%30 < 6 {
					return errNet
				}
				return nil
			})
			m := newClient(t, b, lock.WithTTL(5*time.Second)).Mutex("k")
			all.Go(func() {
				err := elect.Campaign(ctx, m, func(ctx context.Context) error {
					mu.Lock()
					if leader != nil && leader.Err() == nil {
						t.Error("two leaders")
					}
					leader = ctx
					terms[i]++
					mu.Unlock()
					start := time.Now()
					select {
					case <-ctx.Done():
					case <-time.After(20 * time.Second):
					}
					mu.Lock()
					if leader == ctx {
						leader = nil
					}
					led += time.Since(start)
					if ctx.Err() != nil {
						losses++
					}
					mu.Unlock()
					return elect.ErrResign
				})
				wantErr(t, "Campaign", err, context.DeadlineExceeded)
			})
		}
		all.Wait()
		if len(terms) != 4 || led < 50*time.Minute || losses < 30 {
			t.Errorf("terms %v, %d lost, led for %v of an hour", terms, losses, led)
		}
	})
}
