package redislock

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
	"github.com/interlock-go/lock/redislock/internal/server"
)

// eval runs a script. With WithWaitReplicas, WAIT follows on the same connection in the
// same round trip, and eval also returns how many replicas have the write.
func (b *service) eval(ctx context.Context, s *protocol.Script, keys []string, args ...any) (protocol.Reply, int, error) {
	if b.opt.replicas == 0 {
		r, err := b.srv.Eval(ctx, s, keys, args...)
		return r, 0, err
	}
	var res evalResult
	for again := true; again; again = res.reply.Status == protocol.Again {
		v, err := b.evalWait(ctx, s, keys, args)
		if err != nil {
			return protocol.Reply{}, 0, err
		}
		res = v.(evalResult)
	}
	return res.reply, res.replicas, nil
}

func (b *service) evalWait(ctx context.Context, s *protocol.Script, keys []string, args []any) (any, error) {
	return b.srv.Detached(ctx, b.srv.Places(ctx, s, keys[0]), func(sending *protocol.Sending) (any, error) {
		var sent time.Time
		var script, wait protocol.Once
		at, err := b.node(ctx, keys[0])
		send := func(bySource bool) error {
			sent, script, wait = time.Now(), s.Command(ctx, sending, bySource, keys, args), b.waitCommand(ctx)
			p := at.client.Pipeline()
			if at.asking {
				_ = p.Process(ctx, protocol.Once{Cmd: redis.NewCmd(ctx, "asking")}) // for the next command
			}
			_ = p.Process(ctx, script) // only queues
			_ = p.Process(ctx, wait)
			_, _ = p.Exec(ctx) // each command has its own error
			return script.Err()
		}
		for redirects := 0; err == nil; redirects++ {
			err = b.retryRefused(ctx, func() error { return server.SendScript(&s, &keys, send) })
			next, ok := b.redirected(ctx, keys[0], err)
			if !ok || redirects >= maxRedirects {
				break
			}
			at, err = next, nil
		}
		if err != nil {
			b.failed(err)
			return nil, server.Classify(err, sending)
		}
		r, err := protocol.ParseReply(script.Val(), sent)
		if err == nil {
			err = wait.Err()
		}
		if err != nil {
			return nil, backend.Uncertain(server.Failure(err))
		}
		return evalResult{r, acknowledged(wait)}, nil
	})
}

// evalResult is the reply of a script, and how many replicas have its write.
type evalResult struct {
	reply    protocol.Reply
	replicas int
}

func (b *service) waitCommand(ctx context.Context) protocol.Once {
	return protocol.Once{Cmd: redis.NewCmd(ctx, "wait", b.opt.replicas, b.opt.replicaTimeout.Milliseconds())}
}

func acknowledged(wait protocol.Once) int {
	n, _ := wait.Val().(int64)
	return int(n)
}

func (b *service) tooFewReplicas(n int) error {
	return fmt.Errorf("%w: %d of %d acknowledged within %v", errReplicas, n, b.opt.replicas, b.opt.replicaTimeout)
}
