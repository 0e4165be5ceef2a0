package conformance_test

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
)

// oneKey matches the key of a case, and the part that is the same when the case is run again. It does not match the keys
// of a case that has many.
var oneKey = regexp.MustCompile(`^conformance-\w+-\d+-([a-z-]+)$`)

// slowOnce delays the nth request for each lock of a case, once.
func slowOnce(n int, d time.Duration) fault {
	var mu sync.Mutex
	sent := map[string]int{}
	delay := func(key string) {
		m := oneKey.FindStringSubmatch(key)
		if m == nil {
			return
		}
		mu.Lock()
		sent[m[1]]++
		now := sent[m[1]] == n
		mu.Unlock()
		if now {
			time.Sleep(d) // the fault
		}
	}
	return fault{name: fmt.Sprintf("slow at request %d", n), build: func(w *wrap, _ *service) {
		w.shares = true
		w.try = func(ctx context.Context, req backend.Request) (backend.Grant, error) {
			delay(req.Key)
			return w.Backend.TryAcquire(ctx, req)
		}
		w.acquire = func(ctx context.Context, req backend.Request) (backend.Grant, error) {
			delay(req.Key)
			return w.Backend.Acquire(ctx, req)
		}
		w.grant = func(req backend.Request, g backend.Grant) backend.Grant {
			return &wrapGrant{Grant: g, renew: func(ctx context.Context, ttl time.Duration) error {
				delay(req.Key)
				return g.Renew(ctx, ttl)
			}}
		}
	}}
}

// TestSlowService: one request that takes longer than the TTLs of the suite fails no case of a correct driver; what
// could not be learned because of it is run again.
func TestSlowService(t *testing.T) {
	t.Parallel()
	cases := conformance.Only("^(cancellation/1[67]-|lease/2[1-4]-|shared/46-|waiting/09-)")
	var wg sync.WaitGroup // they wait, and do not compute
	defer wg.Wait()
	for n := 1; n <= 6; n++ {
		wg.Go(func() {
			h := slowOnce(n, 2500*time.Millisecond).open()
			h.Slack = 8 * time.Second
			rep, err := conformance.Check(t.Context(), h, cases, conformance.CaseTimeout(time.Minute))
			if err != nil {
				t.Error(err)
				return
			}
			for id, reason := range failures(rep) {
				t.Errorf("request %d, %s: want it passed, got %s", n, id, reason)
			}
		})
	}
}
