package zklock

import (
	"context"
	"sync"
	"time"
)

// sessionClock computes until when the service certainly keeps a session.
//
// The leader ends a session if it has learned of no packet of it for the timeout. A
// follower reports packets to the leader only with each heartbeat, every half tick. A
// follower without a connection to the leader still answers pings and reads for
// several ticks. So an answer alone proves nothing. These prove something:
//
//   - The leader itself opens and resumes sessions.
//   - A majority agreed to an answered change. So the server was connected to the
//     leader after the change was sent, and had reported every packet that it answered
//     more than half a tick before that.
type sessionClock struct {
	relay time.Duration // more than the time between two heartbeats

	mu       sync.Mutex // guards the fields below
	current  sessionTimes
	unproven []exchange    // in order; the leader may not know them yet
	news     chan struct{} // closed at the next answered change
}

type sessionTimes struct {
	timeout   time.Duration
	aliveAt   time.Time // when the latest packet was sent that the leader certainly knows
	changedAt time.Time // when the last answered change was sent
}

// exchange is a packet that was answered.
type exchange struct{ sent, answered time.Time }

// relayTime returns the longest time in which a follower does not report to the
// leader. Half a tick is a quarter of the least session timeout by default.
func relayTime(least time.Duration) time.Duration { return max(least*5/16, 20*time.Millisecond) }

// connected notes that the session was opened or resumed on a new connection, and
// the timeout that the server granted. sent is when the handshake was sent, zero if
// that is not known. The previous server may not have reported its last packets.
func (c *sessionClock) connected(sent time.Time, timeout time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unproven = nil
	if sent.After(c.current.aliveAt) {
		c.current.aliveAt = sent
	}
	if timeout > 0 && timeout < c.current.timeout {
		c.current.timeout = timeout // another server, with lower bounds
	}
}

// answered notes the answer to a packet. change: it was an executed change.
func (c *sessionClock) answered(sent, now time.Time, change bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if change {
		if sent.After(c.current.changedAt) {
			c.current.changedAt = sent
		}
		close(c.news)
		c.news = make(chan struct{})
		reported := sent.Add(-c.relay)
		for len(c.unproven) > 0 && !c.unproven[0].answered.After(reported) {
			if c.unproven[0].sent.After(c.current.aliveAt) {
				c.current.aliveAt = c.unproven[0].sent
			}
			c.unproven = c.unproven[1:]
		}
	}
	// A busy connection does not need to remember every packet.
	if n := len(c.unproven); n == 0 || sent.Sub(c.unproven[n-1].sent) >= c.relay/8 {
		if n >= 512 {
			c.unproven = c.unproven[1:]
		}
		c.unproven = append(c.unproven, exchange{sent, now})
	}
}

func (c *sessionClock) times() sessionTimes {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// until returns the instant until which the session certainly lasts. It is in the past
// while nothing is known yet.
func (t sessionTimes) until() time.Time { return t.aliveAt.Add(t.timeout) }

// trust returns since when a lease of that TTL is certain. The timeout of the session is longer than the TTL, for packets
// that the leader may not know yet.
func (c *sessionClock) trust(ttl time.Duration) (sent time.Time, most time.Duration) {
	t := c.times()
	most = min(ttl, t.timeout)
	sent = t.aliveAt.Add(t.timeout - most)
	confirmed := t.aliveAt // when the service has last confirmed anything
	if t.changedAt.After(confirmed) {
		confirmed = t.changedAt
	}
	if sent.After(confirmed) {
		sent = confirmed
	}
	return sent, most
}

// awaitChange waits until a change was answered that was sent after an instant.
func (c *sessionClock) awaitChange(ctx context.Context, after time.Time) error {
	for {
		c.mu.Lock()
		news, done := c.news, c.current.changedAt.After(after)
		c.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return endOf(ctx)
		}
	}
}
