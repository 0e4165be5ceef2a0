package redislock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
)

var _ backend.BatchRenewer = (*Backend)(nil)

// RenewBatch is one round trip: the renewals of all, each a script of its own, with
// one WAIT at the end where replicas have to acknowledge. In a cluster it is
// unsupported: the answers of all would be awaited, and those of a dead node delay
// what others hold.
func (b *Backend) RenewBatch(ctx context.Context, renewals []backend.Renewal) []error {
	if b.cluster != nil {
		return same(len(renewals), fmt.Errorf("redis cluster: renewing many at once: %w", errors.ErrUnsupported))
	}
	answers, err := b.detachedAny(ctx, func() (any, error) { return b.renewAll(ctx, renewals), nil })
	if err != nil {
		return same(len(renewals), err)
	}
	errs := make([]error, len(renewals))
	for i, a := range answers.([]renewal) {
		if errs[i] = a.err; a.err == nil {
			errs[i] = renewals[i].Grant.(*grant).renewed(a.reply, a.got, renewals[i].TTL)
		}
	}
	return errs
}

func same(n int, err error) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// renewal is what came of one.
type renewal struct {
	reply reply
	got   int // replicas that have it
	err   error
}

var errForeignGrant = fmt.Errorf("%w grant: of another backend", backend.ErrInvalid)

func (b *Backend) renewAll(ctx context.Context, renewals []backend.Renewal) []renewal {
	answers := make([]renewal, len(renewals))
	var todo []int
	for i, r := range renewals {
		if g, ok := r.Grant.(*grant); ok && g.a.b == b {
			todo = append(todo, i)
		} else {
			answers[i].err = errForeignGrant
		}
	}
	for bySource := false; len(todo) > 0; bySource = true {
		p := b.rdb.Pipeline()
		cmds := make([]once, len(todo))
		for j, i := range todo {
			names, args := renewals[i].Grant.(*grant).renewal(renewals[i].TTL, "0")
			// by source only the first: it loads the script for the others
			cmds[j] = evalCmd(ctx, renewScript, bySource && j == 0, names, args)
			_ = p.Process(ctx, cmds[j]) // queued; errors come with Exec
		}
		w := once{redis.NewCmd(ctx, "wait", b.opt.replicas, b.opt.replicaTimeout.Milliseconds())}
		if b.opt.replicas > 0 {
			_ = p.Process(ctx, w)
		}
		sent := time.Now()
		_, _ = p.Exec(ctx) // each command has its error
		got, _ := w.Val().(int64)
		var again []int
		for j, i := range todo {
			a, err := &answers[i], cmds[j].Err()
			switch {
			case !bySource && redis.HasErrorPrefix(err, "NOSCRIPT"):
				again = append(again, i)
			case err != nil:
				a.err = classify(err)
			default:
				a.reply, a.err = parseReply(cmds[j].Val(), sent)
				a.got = int(got)
				if a.err == nil && a.reply.status == yes && w.Err() != nil {
					a.err = backend.Uncertain(failure(w.Err()))
				}
			}
		}
		todo = again
	}
	return answers
}
