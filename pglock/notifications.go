package pglock

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
)

// push is a grant that another client handed over to an attempt of this process.
type push struct {
	token    uint64
	expires  int64 // server time, µs
	ttl      time.Duration
	received time.Time
}

// receive handles a notification to this process. It never blocks, and is not called
// concurrently. Notifications are
//
//	g owner token expiry ttl name   granted, with the provisional TTL
//	h owner time left               first in the queue; what remains of the lease at that time
//	l owner                         lost: broken by another client
//
// with times in µs on the server's clock, and the name as hex digits.
func (b *Backend) receive(payload string) {
	received := time.Now()
	f := strings.Split(payload, " ")
	if len(f) < 2 {
		return
	}
	b.mu.Lock()
	a, state, closed := b.attempts[f[1]], settled, b.closed
	if a != nil {
		state = a.state
	}
	waits := state == waiting || state == revoked
	if waits && f[0] == "l" {
		a.state = revoked // Acquire may have the next grant by then
	}
	b.mu.Unlock()
	switch {
	case closed:
	case f[0] == "g" && len(f) == 6 && state == settled:
		b.releaseUnclaimed(f[1], f[5])
	case f[0] == "g" && len(f) == 6 && waits:
		select {
		case <-a.pushed: // an older push that Acquire has not received
		default:
		}
		a.pushed <- push{token: uint64(number(f[2])), expires: number(f[3]), ttl: micros64(number(f[4])), received: received}
	case f[0] == "h" && len(f) == 4 && waits:
		a.leaseChanged(number(f[2]), micros64(number(f[3])))
	case f[0] == "l" && state == holding && a.req.OnLost != nil:
		a.unregister()
		a.req.OnLost(fmt.Errorf("%w: broken by another client", backend.ErrLost))
	}
}

// number reads a number that a statement wrote.
func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// releaseUnclaimed releases a grant that was pushed to an attempt which has ended. If
// that fails, the provisional TTL ends the grant.
func (b *Backend) releaseUnclaimed(owner, name string) {
	key, err := hex.DecodeString(name)
	if err != nil || !b.enter() {
		return
	}
	go func() {
		defer b.wg.Done()
		ctx, cancel := context.WithTimeout(b.ctx, provisionalTTL)
		defer cancel()
		_, _, _ = b.exec(ctx, b.sql.release, key, owner, false)
	}()
}
