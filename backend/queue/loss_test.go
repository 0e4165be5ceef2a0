package queue_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/backend/queue/queuetest"
)

// TestUnansweredThenLost: after the loss of a grant that an event brought, the request that had no answer is refused.
func TestUnansweredThenLost(t *testing.T) {
	for _, byEvent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, b, g, next := contended(t)
			a.svc.SetFaults(queuetest.Faults{LoseReplies: true})
			a.Interrupted("")
			synctest.Wait()
			a.svc.SetFaults(queuetest.Faults{})
			release(t, g)
			got := granted(t, next, time.Second)
			a.svc.SetFaults(queuetest.Faults{LoseEvents: !byEvent})
			if _, err := b.Break(t.Context(), key, ""); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if !byEvent {
				if err := got.Renew(t.Context(), ttl); !errors.Is(err, backend.ErrLost) {
					t.Errorf("Renew of a broken grant: want ErrLost, got %v", err)
				}
				synctest.Wait()
			}
			if n := a.svc.counts().late; n != 1 {
				t.Errorf("ends that refuse late requests, after a loss: want 1, got %d", n)
			}
		})
	}
}

// TestLiveWriter: a live writer that waits behind a reader keeps its place before readers that come after it. They send
// a request in each ProvisionalTTL, however many they are, and it sends one in return.
func TestLiveWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := queuetest.NewServer()
		a, b, c := start(t, s), start(t, s), start(t, s)
		g := a.lock(t, backend.Reader, time.Second)
		writer := b.waits(t, t.Context(), backend.Share{})
		var readers []<-chan result
		for range 20 {
			readers = append(readers, c.waits(t, t.Context(), backend.Reader))
		}
		synctest.Wait()
		before := b.svc.counts().asked + c.svc.counts().asked
		time.Sleep(3 * queue.ProvisionalTTL)
		if n := b.svc.counts().asked + c.svc.counts().asked - before; n < 4 || n > 6 {
			t.Errorf("requests of a writer and 20 readers behind it in 9s: want one of each in 3s, got %d", n)
		}
		release(t, g)
		w := granted(t, writer, time.Millisecond)
		release(t, w)
		for _, r := range readers {
			release(t, granted(t, r, time.Millisecond))
		}
	})
}
