package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
	"github.com/interlock-go/lock/redislock/internal/server"
)

var _ backend.BatchRenewer = (*Backend)(nil)

var errOtherBackend = fmt.Errorf("%w grant: of another backend", backend.ErrInvalid)

// RenewBatch sends the renewals in one round trip: a script each, and one WAIT with
// WithWaitReplicas. A cluster does not support it: the batch would wait for all nodes,
// and a dead node would delay the renewals on the others.
func (b *Backend) RenewBatch(ctx context.Context, renewals []backend.Renewal) []error {
	if b.srv.Cluster != nil {
		return slices.Repeat([]error{fmt.Errorf("redis cluster: renewing many at once: %w", errors.ErrUnsupported)}, len(renewals))
	}
	v, err := b.srv.Detached(ctx, func(sending *protocol.Sending) (any, error) {
		return b.renewAll(ctx, sending, renewals), nil
	})
	if err != nil {
		return slices.Repeat([]error{err}, len(renewals))
	}
	errs := make([]error, len(renewals))
	for i, r := range v.([]renewalResult) {
		if errs[i] = r.err; r.err == nil {
			errs[i] = renewals[i].Grant.(*grant).renewed(r.reply, r.replicas, renewals[i].TTL)
		}
	}
	return errs
}

type renewalResult struct {
	evalResult
	err error
}

func (b *Backend) renewAll(ctx context.Context, sending *protocol.Sending, renewals []backend.Renewal) []renewalResult {
	results := make([]renewalResult, len(renewals))
	var todo []int
	for i, r := range renewals {
		if g, ok := r.Grant.(*grant); ok && g.a.b == b {
			todo = append(todo, i)
		} else {
			results[i].err = errOtherBackend
		}
	}
	for bySource := false; len(todo) > 0; bySource = true {
		p := b.srv.Client.Pipeline()
		cmds := make([]protocol.Once, len(todo))
		for j, i := range todo {
			keys, args := renewals[i].Grant.(*grant).renewal(renewals[i].TTL, "0")
			cmds[j] = protocol.Renew.Command(ctx, sending, bySource && j == 0, keys, args) // the first loads the script
			_ = p.Process(ctx, cmds[j])                                                    // only queues
		}
		wait := b.waitCommand(ctx)
		if b.opt.replicas > 0 {
			_ = p.Process(ctx, wait)
		}
		sent := time.Now()
		_, _ = p.Exec(ctx) // each command has its own error
		var again []int
		for j, i := range todo {
			r, err := &results[i], cmds[j].Err()
			switch {
			case !bySource && redis.HasErrorPrefix(err, "NOSCRIPT"):
				again = append(again, i)
			case err != nil:
				r.err = server.Classify(err, sending)
			default:
				r.reply, r.err = protocol.ParseReply(cmds[j].Val(), sent)
				r.replicas = acknowledged(wait)
				if r.err == nil && r.reply.Status == protocol.Yes && wait.Err() != nil {
					r.err = backend.Uncertain(server.Failure(wait.Err()))
				}
			}
		}
		todo = again
	}
	return results
}
