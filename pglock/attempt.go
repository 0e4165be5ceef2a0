package pglock

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
)

// attemptState says where the notifications for an attempt go.
type attemptState int

const (
	waiting attemptState = iota // grants and lease lengths go to Acquire
	revoked                     // as waiting; a grant was revoked since the last request
	holding                     // revocations go to Request.OnLost; TryAcquire begins here
	settled                     // failed, and each request had a reply; Abandon writes no tombstone
	// Of an attempt that is settled or not registered, a pushed grant is released.
)

// attempt is registered in Backend.attempts while it waits or holds.
type attempt struct {
	b     *Backend
	req   backend.Request
	key   []byte
	line  *line
	timer *time.Timer // of the next poll; nil of TryAcquire

	peek       bool      // the next request is a poll that is expected to find nothing new
	claim      bool      // the next request follows a push
	shares     bool      // the lock was used with shares
	unanswered bool      // a request to acquire had no reply: the server may still execute it
	pushed     chan push // capacity 1: a grant that was pushed
	// A request to pass an expired lease on had no reply, nor a later one: it may have dropped the waiters of this process.
	passUnknown bool

	// The rest is guarded by b.mu.
	state     attemptState
	doubted   bool   // accept has returned false
	ended     bool   // Release was called
	checking  bool   // checkLoss waits for its turn
	answering bool   // answerNow waits for its turn
	ahead     string // hash of the secret of the attempt ahead in the queue, or of the holder; "" after a proven push
	dropped   bool   // the server may have dropped it from the queue: it asks
	pushSeen  bool   // a grant was pushed since the last request was sent
}

func (b *Backend) newAttempt(req backend.Request, state attemptState) *attempt {
	a := &attempt{b: b, req: req, key: b.key(req.Key), state: state}
	if state == waiting {
		a.pushed = make(chan push, 1)
		a.timer = time.NewTimer(time.Hour)
		a.timer.Stop()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.attempts[req.Owner] = a
	a.line = b.lines[req.Key]
	if a.line == nil {
		a.line = &line{slot: make(chan struct{}, 1)}
		b.lines[req.Key] = a.line
	}
	a.line.users++
	return a
}

// processAndHash returns what the row has of the process of the attempt.
func (a *attempt) processAndHash() string {
	return a.b.process + " " + hashOf(a.b.secretOf(a.req.Owner))
}

// beginRequest prepares the attempt for a request. A revocation before the request
// does not matter: the reply contains the grant if there is one.
func (a *attempt) beginRequest() {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	if a.state == revoked {
		a.state = waiting
	}
	a.pushSeen, a.line.again, a.line.asOf = false, false, 0
}

// accept moves the attempt to holding. In state revoked it returns false, once: the
// attempt must ask again. Later it checks the row in the background, so that false
// revocations cannot keep Acquire from returning. The attempt stays registered, because the
// push of a grant that a poll has found may arrive later and must not release the grant. The next
// waiter of the process polls after next. entered is as in a reply.
func (a *attempt) accept(next time.Duration, entered bool) bool {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	doubtful := a.state == revoked
	if doubtful && !a.doubted {
		a.doubted = true
		return false
	}
	a.state = holding
	if a.line.check = (time.Time{}); !a.req.Share.Exclusive() {
		a.line.check = time.Now().Add(provisionalTTL)
	}
	if (entered || a.passUnknown) && slices.Contains(a.line.waiters, a) {
		a.line.dropOthers(a)
	}
	a.passUnknown = false
	a.line.pollIn(next)
	if doubtful {
		go a.checkLoss()
	}
	return true
}

// unregister ends the attempt.
func (a *attempt) unregister() {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	if a.b.attempts[a.req.Owner] == a {
		delete(a.b.attempts, a.req.Owner)
	}
}

// settle ends an attempt on which Abandon will be called.
func (a *attempt) settle() {
	if a.unanswered {
		a.unregister()
		return
	}
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	a.state = settled
}

// micro returns d in µs, rounded up: a lease must not be shorter than the request.
func micro(d time.Duration) int64 {
	us := d.Microseconds()
	if d > micros64(us) {
		us++
	}
	return us
}

func micros64(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

var notPrintable = regexp.MustCompile(`[^ -~]|%`)

// escape makes metadata fit into a database of any encoding: each byte that is not
// printable ASCII, and '%', becomes %XX.
func escape(s string) string {
	return notPrintable.ReplaceAllStringFunc(s, func(c string) string {
		return strings.ReplaceAll(fmt.Sprintf(" % X", c), " ", "%")
	})
}

func unescape(s string) string {
	if u, err := url.PathUnescape(s); err == nil {
		s = u
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
