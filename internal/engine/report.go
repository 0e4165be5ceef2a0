package engine

import (
	"context"
	"time"

	"github.com/interlock-go/lock/backend"
)

// Kind is what happened.
type Kind int

// The kinds of events.
const (
	Waiting Kind = iota
	Acquired
	Failed
	Released
	RenewFailed
	Lost
	Forgotten
	Overdue // of a wait without a limit
)

// overdueAfter is how long a wait without a limit may last before it is reported as Overdue.
const overdueAfter = time.Minute

// Event is what Config.Report gets. Each Acquire ends in one Acquired or one Failed, and
// each Acquired in one Released or one Lost, never before it.
type Event struct {
	Kind   Kind
	Op     string // of Waiting and Failed: that of Acquire
	Key    string
	Share  backend.Share
	Owner  string
	Token  uint64
	Wait   time.Duration // since Acquire was called
	Waited bool          // of Acquired and Failed: Waiting was reported
	Held   time.Duration // since the grant
	Place  string        // of Forgotten: Lease.Place
	Nth    int           // of Lost: of the leases that an outage has cost; zero: not lost in an outage
	Err    error
}

// reportWaiting notes the holder of the key, and reports Waiting the first time, unless
// the call has ended.
func (a *attempt) reportWaiting(locked *backend.LockedError) {
	a.mu.Lock()
	first := a.locked == nil && !a.ended
	a.locked = locked
	report := a.m.engine.cfg.Report
	if _, bounded := a.values.Deadline(); first && !bounded && a.m.params.Wait == 0 && report != nil {
		a.overdue = time.AfterFunc(overdueAfter, a.reportOverdue)
	}
	a.mu.Unlock()
	if first && report != nil {
		report(a.values, a.waits(Waiting, locked))
	}
}

// reportOverdue reports that an attempt without a limit still waits.
func (a *attempt) reportOverdue() {
	a.mu.Lock()
	locked, ended := a.locked, a.ended
	a.mu.Unlock()
	if !ended {
		a.m.engine.cfg.Report(a.values, a.waits(Overdue, locked))
	}
}

func (a *attempt) waits(kind Kind, err error) Event {
	return Event{Kind: kind, Op: a.op, Key: a.m.params.Key, Share: a.m.params.Share, Wait: time.Since(a.start), Err: err}
}

// endReporting ends what reportWaiting may report. It returns whether this call was the
// first and whether Waiting was reported.
func (a *attempt) endReporting() (first, waited bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first, a.ended = !a.ended, true
	if a.overdue != nil {
		a.overdue.Stop()
	}
	return first, a.locked != nil
}

func (a *attempt) reportAcquired(h *heldGrant, wait time.Duration) {
	_, waited := a.endReporting()
	if report := h.engine.cfg.Report; report != nil {
		e := h.event(Acquired, nil)
		e.Wait, e.Waited = wait, waited
		report(a.values, e)
	}
}

// reportFailed reports the failure of a call, unless its success was reported.
func (a *attempt) reportFailed(err error) {
	first, waited := a.endReporting()
	if report := a.m.engine.cfg.Report; first && report != nil {
		e := a.waits(Failed, err)
		e.Waited = waited
		report(a.values, e)
	}
}

// reportEnd reports Released or Lost, but not before Acquired: the grant may be lost, or
// the engine closed, in between.
func (h *heldGrant) reportEnd(ctx context.Context, kind Kind, err error) {
	report := h.engine.cfg.Report
	if report == nil {
		return
	}
	e := h.event(kind, err)
	h.mu.Lock()
	e.Nth = h.lossNumber
	announced := h.announced
	if !announced {
		h.reportLaterLocked(ctx, e)
	}
	h.mu.Unlock()
	if announced {
		report(ctx, e)
	}
}

func (h *heldGrant) reportLaterLocked(ctx context.Context, e Event) {
	h.pendingEnd = func() { h.engine.cfg.Report(ctx, e) }
}

// announce lets the end of the grant be reported, now if it has come already.
func (h *heldGrant) announce() {
	h.mu.Lock()
	h.announced = true
	end := h.pendingEnd
	h.mu.Unlock()
	if end != nil {
		end()
	}
}

func (h *heldGrant) event(kind Kind, err error) Event {
	return Event{Kind: kind, Key: h.req.Key, Share: h.req.Share, Owner: h.req.Owner, Token: h.grant.Token(), Held: time.Since(h.acquired), Err: err}
}
