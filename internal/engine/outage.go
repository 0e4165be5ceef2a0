package engine

import (
	"sync"
	"time"
)

// outageDelay is how long renewals must fail, or succeed again, before that is reported: a
// single failure that the next renewal repairs is no outage.
const outageDelay = time.Second

// Outage is what Config.Outage gets: once when renewals begin to fail, and once when none
// fails any more.
type Outage struct {
	Over     bool
	Affected int           // leases with a failed renewal, so far
	Lost     int           // those of them that were lost
	Lasted   time.Duration // since the first failure
	Err      error         // of the first renewal that failed
}

// outages counts the held grants whose last renewal failed.
type outages struct {
	report func(Outage) // nil: nothing is reported; called without locks held

	mu       sync.Mutex // guards the fields below, and heldGrant.failing
	failing  int
	current  Outage // zero: no renewal has failed since the last was reported as over
	began    time.Time
	ended    time.Time // of the last failure; while failing is zero
	reported bool      // its beginning
	timer    *time.Timer
}

// failed notes that a renewal of h failed. The caller holds the mutex of h.
func (o *outages) failed(h *heldGrant, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if h.failing || o.report == nil {
		return
	}
	if o.current.Affected == 0 {
		o.began, o.current.Err = time.Now(), err
	}
	if o.failing == 0 {
		o.startTimerLocked()
	}
	h.failing = true
	o.failing++
	o.current.Affected++
}

// over notes that a renewal of h succeeded, or that h has ended. It returns how many leases the
// outage has cost with this one, or zero if h is not lost in an outage. The caller holds the
// mutex of h.
func (o *outages) over(h *heldGrant, lost bool) (nth int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !h.failing {
		return 0
	}
	h.failing = false
	if lost {
		o.current.Lost++
		nth = o.current.Lost
	}
	if o.failing--; o.failing == 0 {
		o.ended = time.Now()
		o.startTimerLocked()
	}
	return nth
}

func (o *outages) startTimerLocked() {
	if o.timer == nil {
		o.timer = time.AfterFunc(outageDelay, o.settle)
	} else {
		o.timer.Reset(outageDelay)
	}
}

// settle reports what has been so for outageDelay.
func (o *outages) settle() {
	o.mu.Lock()
	report := o.current
	report.Over = o.failing == 0
	send := report.Over == o.reported && report.Affected > 0
	report.Lasted = time.Since(o.began)
	if report.Over {
		report.Lasted = o.ended.Sub(o.began)
		o.current = Outage{}
	}
	o.reported = !report.Over
	o.mu.Unlock()
	if send {
		o.report(report)
	}
}
