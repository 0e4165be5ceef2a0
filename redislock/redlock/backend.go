package redlock

import (
	"context"
	"slices"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
)

// Backend is a driver over several independent masters, of which a majority must agree. It
// is safe for concurrent use.
type Backend struct {
	*queue.Backend
	svc  *service
	caps backend.Capabilities
}

var (
	_ backend.Backend        = (*Backend)(nil)
	_ backend.Waiter         = (*Backend)(nil)
	_ backend.Inspector      = (*Backend)(nil)
	_ backend.Lister         = (*Backend)(nil)
	_ backend.Breaker        = (*Backend)(nil)
	_ backend.Pinger         = (*Backend)(nil)
	_ backend.StatusReporter = (*Backend)(nil)
)

// TryAcquire makes one attempt, in one round trip to all nodes.
func (r *Backend) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	g, err := r.Backend.TryAcquire(ctx, req)
	return g, r.failed(req, err)
}

// Acquire implements backend.Waiter.
func (r *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	g, err := r.Backend.Acquire(ctx, req)
	return g, r.failed(req, err)
}

// failed ends an attempt that the caller does not abandon, because its outcome is known.
func (r *Backend) failed(req backend.Request, err error) error {
	if a := r.svc.known(req.Owner); a != nil && err != nil && !backend.OutcomeUnknown(err) {
		a.endEverywhere()
	}
	return err
}

// Capabilities returns what the backend guarantees.
func (r *Backend) Capabilities() backend.Capabilities {
	c := r.caps
	c.Caveats = slices.Clone(c.Caveats)
	return c
}

// Ping makes one round trip to each node. It fails if fewer than a majority answer.
func (r *Backend) Ping(ctx context.Context) error {
	all, end := each(ctx, r.svc, noTTL, func(ctx context.Context, i int) (any, error) {
		return nil, r.svc.nodes[i].Ping(ctx)
	}, aQuorum[any](r.svc))
	if n := answered(all); end == nil && n < r.svc.need {
		return failed(r.svc, "answered", n, all)
	}
	return end
}

// ReportStatus implements backend.StatusReporter.
func (r *Backend) ReportStatus(report func(what string, err error)) {
	r.svc.status.Store(&report)
	for _, n := range r.svc.nodes { // outages that began before
		n.outage.Lock()
		n.reportStatus()
		n.outage.Unlock()
	}
}
