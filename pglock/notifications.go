package pglock

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
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
	proven   bool // by the secret of the attempt ahead
	shares   bool // the lock was used with shares
}

// receive handles a notification to this process. It never blocks, and is not called
// concurrently. Notifications are
//
//	g owner token expiry ttl name secret   granted, with the provisional TTL
//	G ...                                  the same, of a lock that was used with shares
//	s time name secret [owner token expiry]...   shares granted, with provisional TTLs; the secret may be "-"
//	h owner time left                      first in the queue; what remains of the lease at that time
//	l owner                                lost: broken by another client
//	a owner                                first in the queue, and in the way of others: answer that the process is alive
//
// with times in µs on the server's clock, and the name as hex digits. Only a release sends
// a secret. Any role that may connect to the database can send notifications, so each is a
// hint to ask the server, except a grant that the secret proves; see secretOf.
func (b *Backend) receive(payload string) {
	received := time.Now()
	f := strings.Split(payload, " ")
	if len(f) < 2 {
		return
	}
	if f[0] == "s" { // as a g for each
		for i := 4; i+2 < len(f); i += 3 {
			b.handle([]string{"G", f[i], f[i+1], f[i+2], fmt.Sprint(number(f[i+2]) - number(f[1])), f[2], f[3]}, received)
		}
		return
	}
	b.handle(f, received)
}

func (b *Backend) handle(f []string, received time.Time) {
	b.mu.Lock()
	a, state, closed := b.attempts[f[1]], settled, b.closed
	if a != nil {
		state = a.state
	}
	shares := f[0] == "G"
	if shares {
		f[0] = "g"
	}
	waits := state == waiting || state == revoked
	if waits && f[0] == "l" {
		a.state = revoked // Acquire may have the next grant by then
	}
	b.mu.Unlock()
	switch {
	case closed:
	case f[0] == "g" && len(f) >= 6 && state == settled:
		b.releaseUnclaimed(f[1], f[5])
	case f[0] == "g" && len(f) >= 6 && waits:
		a.push(push{token: uint64(number(f[2])), expires: number(f[3]), ttl: micros64(number(f[4])), received: received, shares: shares}, f[6:])
	case f[0] == "h" && len(f) == 4 && waits:
		a.leaseChanged(number(f[2]), micros64(number(f[3])))
	case f[0] == "l" && state == holding:
		go a.checkLoss()
	case f[0] == "a" && waits:
		go a.answerNow()
	}
}

// push passes a pushed grant to Acquire. A secret proves one push only: it is public from
// then on.
func (a *attempt) push(p push, secret []string) {
	a.b.mu.Lock()
	a.pushSeen = true
	if len(secret) == 1 && a.ahead != "" && hashOf(secret[0]) == a.ahead {
		a.ahead, p.proven = "", true
	}
	a.b.mu.Unlock()
	if p.proven {
		select {
		case <-a.pushed: // it was not proven
		default:
		}
	}
	select {
	case a.pushed <- p:
	default: // Acquire is going to ask, or has the grant
	}
}

// checkLoss asks the server whether the attempt still holds the key, and calls OnLost if
// not. If there is no answer, the next renewal finds out.
func (a *attempt) checkLoss() {
	if a.req.OnLost != nil {
		a.once(&a.checking, a.checkLossNow)
	}
}

// once makes the request that a notification asks for, unless one waits for its turn. waits, which
// b.mu guards, says so.
func (a *attempt) once(waits *bool, request func()) {
	b := a.b
	b.mu.Lock()
	begin := !*waits
	*waits = true
	b.mu.Unlock()
	if !begin || !b.enter() {
		return
	}
	defer b.wg.Done()
	b.hints <- struct{}{}
	defer func() { <-b.hints }()
	b.mu.Lock()
	*waits = false // a notification from now on makes another request
	b.mu.Unlock()
	request()
}

func (a *attempt) checkLossNow() {
	b := a.b
	info, err := b.Inspect(b.ctx, a.req.Key)
	if err != nil || info.Holder != nil && info.Holder.Owner == a.req.Owner ||
		slices.ContainsFunc(info.Others, func(h backend.Holder) bool { return h.Owner == a.req.Owner }) {
		return
	}
	b.mu.Lock()
	lost := b.attempts[a.req.Owner] == a && !a.ended
	b.mu.Unlock()
	if lost {
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
// that fails, or all slots are in use, the provisional TTL ends the grant.
func (b *Backend) releaseUnclaimed(owner, name string) {
	key, err := hex.DecodeString(name)
	if err != nil || !b.enter() {
		return
	}
	select {
	case b.hints <- struct{}{}:
	default:
		b.wg.Done()
		return
	}
	go func() {
		defer b.wg.Done()
		defer func() { <-b.hints }()
		ctx, cancel := context.WithTimeout(b.ctx, provisionalTTL)
		defer cancel()
		_, _ = b.release(ctx, key, owner, false, false)
	}()
}
