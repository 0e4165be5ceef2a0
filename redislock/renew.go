package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
	"github.com/interlock-go/lock/redislock/internal/server"
)

var (
	_ backend.BatchRenewer   = (*Backend)(nil)
	_ backend.BatchAbandoner = (*Backend)(nil)
)

var errOtherBackend = fmt.Errorf("%w grant: of another backend", backend.ErrInvalid)

// RenewBatch sends the renewals in one round trip: a script each, and one WAIT with
// WithWaitReplicas. A cluster does not support it: the batch would wait for all nodes,
// and a dead node would delay the renewals on the others.
func (b *Backend) RenewBatch(ctx context.Context, renewals []backend.Renewal) []error {
	if b.srv.Cluster != nil {
		return slices.Repeat([]error{fmt.Errorf("redis cluster: renewing many at once: %w", errors.ErrUnsupported)}, len(renewals))
	}
	errs := make([]error, len(renewals))
	var grants []*grant
	var calls []server.Call
	for i, r := range renewals {
		g, ok := r.Grant.(*grant)
		if !ok || g.a.b != b {
			errs[i] = errOtherBackend
			continue
		}
		keys, args := g.renewal(r.TTL, "0")
		grants, calls = append(grants, g), append(calls, server.Call{Keys: keys, Args: args})
	}
	var wait func(context.Context) protocol.Once
	if b.opt.replicas > 0 {
		wait = b.waitCommand
	}
	results := b.batch(ctx, protocol.Renew, calls, wait)
	for i := range renewals {
		if errs[i] != nil {
			continue
		}
		g, r := grants[0], results[0]
		grants, results = grants[1:], results[1:]
		replicas := 0
		if r.Err == nil && wait != nil {
			replicas = acknowledged(r.Last)
			if err := r.Last.Err(); err != nil && r.Reply.Status == protocol.Yes {
				r.Err = backend.Uncertain(server.Failure(err))
			}
		}
		if errs[i] = r.Err; r.Err == nil {
			errs[i] = g.renewed(r.Reply, replicas, renewals[i].TTL)
		}
	}
	return errs
}

// AbandonBatch abandons the attempts in one round trip; in a cluster, one to each node.
func (b *Backend) AbandonBatch(ctx context.Context, reqs []backend.Request) []error {
	calls := make([]server.Call, len(reqs))
	for i, req := range reqs {
		calls[i] = b.abandonment(req, b.unregister(req.Owner))
	}
	errs := make([]error, len(reqs))
	for i, r := range b.batch(ctx, abandonScript, calls, nil) {
		switch {
		case r.Err == nil && r.Reply.Status == protocol.Again:
			r.Err = b.Abandon(ctx, reqs[i])
		case r.Err == nil:
			b.abandoned(reqs[i], r.Reply)
		}
		errs[i] = r.Err
	}
	return errs
}

// batch sends the calls together. The errors of the results are classified.
func (b *Backend) batch(ctx context.Context, s *protocol.Script, calls []server.Call, last func(context.Context) protocol.Once) []server.Result {
	v, err := b.srv.Detached(ctx, nil, func(sending *protocol.Sending) (any, error) {
		results := b.srv.Batch(ctx, sending, b.srv.Client, s, calls, last)
		for i := range results {
			b.failed(results[i].Err)
			results[i].Err = server.Classify(results[i].Err, sending)
		}
		return results, nil
	})
	if err != nil {
		return slices.Repeat([]server.Result{{Err: err}}, len(calls))
	}
	return v.([]server.Result)
}
