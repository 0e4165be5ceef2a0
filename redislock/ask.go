package redislock

import (
	"time"

	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// asks reports whether a share that waits polls every ProvisionalTTL. Its poll asks the first waiter, which does not fit
// beside the holders, to poll too, and removes the waiters of its process if it did not since the poll before. One share
// of this process does so for each lock. behind: the first waiter is of another process.
func (b *Backend) asks(a *attempt, behind bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := a.keys.Lock
	switch current := b.asking[k]; {
	case current == nil && behind:
		b.asking[k] = a
	case current == a && !behind:
		delete(b.asking, k)
	}
	return b.asking[k] == a
}

// stopAsking ends the polls of an attempt that no longer waits. Another share polls in its place.
func (b *Backend) stopAsking(a *attempt) {
	b.mu.Lock()
	if b.asking[a.keys.Lock] != a {
		b.mu.Unlock()
		return
	}
	delete(b.asking, a.keys.Lock)
	var next *attempt
	for _, other := range b.attempts {
		if other != a && other.keys == a.keys && other.state != holding && !other.req.Share.Exclusive() {
			next = other
			break
		}
	}
	b.mu.Unlock()
	if next != nil {
		next.mu.Lock()
		next.polls.within(time.Now().Add(protocol.ProvisionalTTL))
		next.mu.Unlock()
	}
}

// answer answers a share that asked whether attempt a, the first waiter, is alive.
func (b *Backend) answer(a *attempt, waits bool, m protocol.Message) {
	switch {
	case waits:
		a.mu.Lock()
		a.polls.now()
		a.mu.Unlock()
	case a == nil: // it has ended, and its place remains
		b.endUnclaimed(abandonScript, m)
	}
}
