package zklock

import (
	"sync"
	"time"
)

// clock tells up to when the service keeps a session.
//
// The leader ends a session when it has not heard of it for the timeout. A packet
// that a client sends counts when the leader hears of it, and a follower tells
// the leader only with each heartbeat, every half tick. A follower that is cut off
// from the leader goes on answering pings and reads for several ticks, of which
// the leader never hears. So an answer as such proves nothing. What proves it:
//
//   - the opening and resuming of a session is done by the leader;
//   - when a change is answered, a majority agreed to it, so that its server was in
//     touch with the leader after the request was sent, and had told it of every
//     packet that it had answered half a tick before that.
//
// base is the time of sending of the latest packet that counts for certain.
type clock struct {
	mu      sync.Mutex
	timeout time.Duration
	relay   time.Duration // more than the time from one heartbeat to the next
	base    time.Time
	answer  time.Time // of the last answer of whatever kind
	change  time.Time // when the last change that was answered was sent
	touches []touch   // answered, in order, and not known to count
}

type touch struct{ sent, answered time.Time }

// relayTime is how long a follower keeps from the leader what it has heard, at
// most. Half a tick is a quarter of the least session timeout, unless that has
// been configured otherwise.
func relayTime(least time.Duration) time.Duration { return max(least*5/16, 20*time.Millisecond) }

// handshake notes that the session was opened or resumed, by a request sent then.
// What another server had not passed on is forgotten.
func (c *clock) handshake(sent, now time.Time, timeout time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.touches = nil
	c.answer = now
	if sent.After(c.base) {
		c.base = sent
	}
	if timeout > 0 && timeout < c.timeout {
		c.timeout = timeout // another server, with lower bounds
	}
}

// moved forgets what may not have been passed on.
func (c *clock) moved() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.touches = nil
}

// answered notes an answer to a packet, which may have been a change.
func (c *clock) answered(sent, now time.Time, change bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = now
	if change {
		if sent.After(c.change) {
			c.change = sent
		}
		told := sent.Add(-c.relay)
		n := 0
		for n < len(c.touches) && !c.touches[n].answered.After(told) {
			if c.touches[n].sent.After(c.base) {
				c.base = c.touches[n].sent
			}
			n++
		}
		c.touches = c.touches[n:]
	}
	// a busy connection need not remember each packet
	if n := len(c.touches); n == 0 || sent.Sub(c.touches[n-1].sent) >= c.relay/8 {
		if n >= 512 {
			c.touches = c.touches[1:]
		}
		c.touches = append(c.touches, touch{sent, now})
	}
}

// until is the instant up to which the session certainly lasts; zero if nothing
// is known yet.
func (c *clock) until() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.base.IsZero() {
		return time.Time{}
	}
	return c.base.Add(c.timeout)
}

func (c *clock) lastAnswer() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answer
}

func (c *clock) lastChange() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.change
}

func (c *clock) period() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.timeout
}
