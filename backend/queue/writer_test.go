package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/backend/queue/queuetest"
)

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
