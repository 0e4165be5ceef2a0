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

// eval runs a script. With WithWaitReplicas, WAIT follows on the same connection in the
// same round trip, and eval also returns how many replicas have the write.
func (b *service) eval(ctx context.Context, s *protocol.Script, keys []string, args ...any) (protocol.Reply, int, error) {
	if b.opt.replicas == 0 {
		r, err := b.srv.Eval(ctx, s, keys, args...)
		return r, 0, err
	}
	leave, err := b.srv.EnterPlace(ctx, s, keys[0])
	if err != nil {
		return protocol.Reply{}, 0, err
	}
	res, err := call.Detached(ctx, b.srv.Life, func(within context.Context, sending *call.Sending) (evalResult, error) {
		defer leave()
		return b.evalWait(ctx, within, sending, s, keys, args)
	})
	return res.reply, res.replicas, err
}

// evalWait sends the requests with the context within, and repeats them until ctx ends.
func (b *service) evalWait(ctx, within context.Context, sending *call.Sending, s *protocol.Script, keys []string, args []any) (evalResult, error) {
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
	sendAny := func() error {
		if err := send(false); err != nil {
			return server.Resend(err, &s, &keys, send)
		}
		return nil
	}
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
		return evalResult{}, server.Classify(err, sending)
	}
	r, err := protocol.ParseReply(script.Val(), sent)
	if err == nil {
		err = wait.Err()
	}
	if err != nil {
		return evalResult{}, backend.Uncertain(server.Failure(err))
	}
	return evalResult{r, acknowledged(wait)}, nil
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
