package lock

import "time"

// StopTimers stands for a process that is stopped: no timer of the lease fires.
func (l *Lease) StopTimers() {
	h := l.of.(*hold)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trust.Stop()
	if h.renew != nil {
		h.renew.Stop()
	}
}

// NextTick exposes when Every runs next.
func NextTick(now, last time.Time, interval, offset time.Duration) time.Time {
	return (&everyConfig{interval: interval, offset: offset}).next(now, last)
}

// Margin exposes the margin of the trust rule.
func Margin(ttl time.Duration) time.Duration { return margin(ttl) }

// What a gate of renewals does at most.
const (
	AloneAtMost   = aloneAtMost
	BatchAtMost   = batchAtMost
	BatchesAtMost = batchesAtMost
	Patience      = patience
)
