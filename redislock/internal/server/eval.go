package server

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// Eval runs a script in one round trip. A script with many dead waiters to remove does so
// in chunks, a round trip each. Eval returns as soon as ctx ends. The command then
// finishes in the background, within the timeouts of the client, so that no reply
// remains on a pooled connection.
func (s *Server) Eval(ctx context.Context, script *protocol.Script, keys []string, args ...any) (protocol.Reply, error) {
	for {
		r, err := s.eval(ctx, script, keys, args)
		if err != nil || r.Status != protocol.Again {
			return r, err
		}
	}
}

func (s *Server) eval(ctx context.Context, script *protocol.Script, keys []string, args []any) (protocol.Reply, error) {
	v, err := s.Detached(ctx, s.Places(ctx, script, keys[0]), func(sending *protocol.Sending) (any, error) {
		var c protocol.Once
		var sent time.Time
		send := func(bySource bool) error {
			sent = time.Now()
			c = script.Command(ctx, sending, bySource, keys, args)
			return s.Client.Process(ctx, c)
		}
		run := func() error { return SendScript(&script, &keys, send) }
		var err error
		if s.Around != nil {
			err = s.Around(ctx, run)
		} else {
			err = run()
		}
		if err != nil {
			return protocol.Reply{}, Classify(err, sending)
		}
		return protocol.ParseReply(c.Val(), sent)
	})
	r, _ := v.(protocol.Reply)
	return r, err
}

// SendScript sends a script by its SHA, and by its source if the server does not know
// it. If the slot migrates, it sends the variant of the script that uses only the first
// key, if there is one.
func SendScript(s **protocol.Script, keys *[]string, send func(bySource bool) error) error {
	err := send(false)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		err = send(true)
	}
	if (*s).FirstKey == nil || !redis.IsTryAgainError(err) {
		return err
	}
	*s, *keys = (*s).FirstKey, slices.Concat((*keys)[:1], (*keys)[min(3, len(*keys)):])
	return SendScript(s, keys, send)
}
