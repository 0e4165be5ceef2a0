package redlock

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/redislock/internal/quorum"
)

// marker is what clients have written about a node. A node votes if its marker is of the present run of the server, and
// its quarantine has passed: every grant that the run before, or a step of its clock, may have lost has expired then.
type marker struct {
	run, set string
	id       int64         // of the quarantine
	passed   time.Duration // of it, by the clocks of the clients: that of a node that has just started may be stepped
}

func (m marker) String() string {
	return fmt.Sprintf("%s %s %d %d", m.run, m.set, m.id, m.passed.Milliseconds())
}

// parseMarker returns false for a text that is no marker.
func parseMarker(text string) (m marker, ok bool) {
	f := strings.Split(text, " ")
	if len(f) != 4 {
		return m, false
	}
	id, err := strconv.ParseInt(f[2], 10, 64)
	ms, failed := strconv.ParseInt(f[3], 10, 64)
	return marker{f[0], f[1], id, time.Duration(ms) * time.Millisecond}, err == nil && failed == nil
}

// setID returns what a marker has of the name of a set.
func setID(name string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(name)))[:16] }

// quarantine is how long a node that may have lost grants has no vote: the clocks of two machines may drift.
func (s *service) quarantine() time.Duration {
	return (s.opt.restartDelay + s.opt.restartDelay/100).Truncate(time.Millisecond)
}

// votes returns why a node in that life does not vote, nil if it does.
func (n *node) votes(l quorum.Life) error {
	m, ok := parseMarker(l.Marker)
	same := ok && (n.s.opt.Durable || m.run == l.Run)
	switch {
	case ok && m.set != n.s.opt.set:
		return errOtherSet
	case same && m.passed >= n.s.quarantine():
		return nil
	}
	n.count(false)
	if !same {
		m.id, m.passed = 0, 0
	}
	left := n.s.quarantine() - n.elapsed(m)
	return fmt.Errorf("%w: it votes again in %v", errQuarantined, max(left, 0).Round(time.Millisecond))
}

// elapsed returns the part of a quarantine that has certainly passed.
func (n *node) elapsed(m marker) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.id != m.id || m.passed > n.passed+time.Since(n.at) {
		n.id, n.passed, n.at = m.id, m.passed, time.Now()
	}
	return n.passed + time.Since(n.at)
}

// count counts the quarantine of a node in the background until it has passed. suspect: a new one begins, because a step
// of the node's clock may have ended leases.
func (n *node) count(suspect bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.counting && !suspect {
		return
	}
	n.counting = n.Go(func() {
		for n.Context().Err() == nil && !n.countOnce(&suspect) {
			call.Sleep(n.Context(), min(n.s.quarantine()/20, time.Second))
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.counting = false
	})
}

// countOnce writes what has passed of the quarantine, or a new one. It returns true if there is none any more.
func (n *node) countOnce(suspect *bool) (over bool) {
	ctx, cancel := context.WithTimeout(n.Context(), n.s.opt.nodeTimeout)
	defer cancel()
	l, err := n.Mark(ctx, quorum.Life{}, "")
	if err != nil {
		return false
	}
	m, ok := parseMarker(l.Marker)
	next := marker{run: l.Run, set: n.s.opt.set, id: l.Now.Microseconds()}
	switch {
	case ok && m.set != n.s.opt.set:
		return true
	case !ok || *suspect || !n.s.opt.Durable && m.run != l.Run: // a new quarantine
	case m.passed >= n.s.quarantine():
		return true
	default:
		next.id, next.passed = m.id, min(n.elapsed(m), n.s.quarantine())
	}
	if l, err = n.Mark(ctx, l, next.String()); err == nil {
		now, _ := parseMarker(l.Marker)
		*suspect = *suspect && now.id == m.id // else a new one has begun, of this client or of another one
	}
	return false
}
