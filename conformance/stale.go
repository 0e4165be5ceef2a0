package conformance

import (
	"sync"
	"time"

	"github.com/interlock-go/lock"
)

// staleConnectionCount is how many connections a client with a pool opens, if its pool has room for them.
const staleConnectionCount = 24

// staleConnections makes every connection of a client silent while it holds a lease.
func staleConnections(t *T) {
	b, link := t.faulty()
	silencer, ok := link.(ConnectionSilencer)
	if !ok {
		t.notRun("the harness's Link is no ConnectionSilencer")
	}
	ttl, late := t.clampTTL(8*time.Second), t.lateness()
	c := t.clientOf(b, lock.WithTTL(ttl))
	kept := t.mustLock(c.Mutex(t.key("kept")), "a free key")
	link.Delay(20 * time.Millisecond) // so that the requests overlap
	var all sync.WaitGroup
	var failed failures // a busy machine may answer some too late; their connections are open all the same
	for range staleConnectionCount {
		m := c.Mutex(t.key("fill"))
		all.Go(func() {
			if l, err := m.Lock(t.ctx); err != nil {
				failed.add(err)
			} else {
				failed.add(l.Unlock(t.ctx))
			}
		})
	}
	all.Wait()
	link.Delay(0)
	if failed.n > staleConnectionCount/2 {
		t.fatalf("%d locks of free keys at once: want at least half of them granted and unlocked, %d failed, the first with: %v",
			staleConnectionCount, failed.n, failed.first)
	}
	silencer.SilenceOpen()
	silent := time.Now()
	// Two requests without answer, each within the limit of the driver.
	m := c.Mutex(t.key("new"))
	select {
	case got := <-t.lockRetry(m):
		t.notef("a new Lock was granted after %v", got.at.Sub(silent).Round(time.Millisecond))
		t.mustUnlock(got.lease, "the new holder")
	case <-time.After(ownLimit):
		if late() > time.Second {
			t.again("no Lock within %v on a machine that stood still for %v", ownLimit, late())
		}
		t.fatalf("a new Lock after all connections fell silent, with new ones that work: want a grant within %v, there was none", ownLimit)
	}
	select {
	case <-kept.Done():
		if stood := late(); stood >= ttl/4 {
			t.again("a lease of %v was lost on a machine that stood still for %v", ttl, stood)
		}
		t.fatalf("a lease of %v, %v after all connections fell silent, with new ones that work: want it held, got %v",
			ttl, time.Since(silent).Round(time.Millisecond), kept.Err())
	case <-time.After(time.Until(silent.Add(ttl + ttl/4))):
	}
	t.mustUnlock(kept, "the holder")
}
