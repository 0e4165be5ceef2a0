package redislock

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/redislock/internal/protocol"
	"github.com/interlock-go/lock/redislock/internal/server"
)

// evalWait is server.Server.Confirm with WithWaitReplicas: WAIT follows the script on the same connection in the same round
// trip. go-redis does not follow redirections of such a pipeline.
func (b *service) evalWait(ctx, within context.Context, sending *call.Sending, s *protocol.Script, keys []string, args []any) (protocol.Reply, error) {
	var sent time.Time
	var script, wait protocol.Once
	at, err := b.node(ctx, keys[0])
	send := func(bySource bool) error {
		sent, script, wait = time.Now(), s.Command(within, sending, bySource, keys, args), b.waitCommand(within)
		p := at.client.Pipeline()
		if at.asking {
			_ = p.Process(within, protocol.Once{Cmd: redis.NewCmd(within, "asking")}) // for the next command
		}
		_ = p.Process(within, script) // only queues
		_ = p.Process(within, wait)
		_, _ = p.Exec(within) // each command has its own error
		return script.Err()
	}
	sendAny := func() error { return server.Resend(send(false), &s, &keys, send) }
	for redirects := 0; err == nil; redirects++ {
		if err = sendAny(); err != nil {
			err = b.retryRefused(ctx, err, sendAny)
		}
		next, ok := b.redirected(ctx, keys[0], err)
		if !ok || redirects >= maxRedirects {
			break
		}
		at, err = next, nil
	}
	if err != nil {
		b.failed(err)
		return protocol.Reply{}, server.Classify(err, sending)
	}
	r, err := protocol.ParseReply(script.Val(), sent)
	if err == nil {
		err = wait.Err()
	}
	if err != nil {
		return protocol.Reply{}, backend.Uncertain(server.Failure(err))
	}
	r.Replicas = acknowledged(wait)
	return r, nil
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
