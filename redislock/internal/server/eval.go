package server

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// Eval runs a script in one round trip. It returns as soon as ctx ends. The command then finishes in the background,
// within the timeouts of the client, so that no reply remains on a pooled connection.
func (s *Server) Eval(ctx context.Context, script *protocol.Script, keys []string, args ...any) (protocol.Reply, error) {
	place, err := s.enterPlace(ctx, script, keys[0])
	if err != nil {
		return protocol.Reply{}, err
	}
	e := &evaluation{s: s, ctx: ctx, place: place, script: script, keys: keys, args: args}
	return call.Detached(ctx, s.Life, e.run)
}

// evaluation is a request that runs a script.
type evaluation struct {
	s      *Server
	ctx    context.Context // of the caller
	place  place
	script *protocol.Script
	keys   []string
	args   []any

	within  context.Context // of the client library
	sending *call.Sending
	cmd     protocol.Once
	sent    time.Time
}

func (e *evaluation) run(within context.Context, sending *call.Sending) (protocol.Reply, error) {
	defer e.place.leave()
	e.within, e.sending = within, sending
	err := e.send()
	if err != nil && e.s.Failed != nil {
		err = e.s.Failed(e.ctx, err, e.send)
	}
	if err != nil {
		return protocol.Reply{}, Classify(err, sending)
	}
	return protocol.ParseReply(e.cmd.Val(), e.sent)
}

func (e *evaluation) send() error {
	if err := e.sendOnce(false); err != nil {
		return Resend(err, &e.script, &e.keys, e.sendOnce)
	}
	return nil
}

func (e *evaluation) sendOnce(bySource bool) error {
	e.sent = time.Now()
	e.cmd = e.script.Command(e.within, e.sending, bySource, e.keys, e.args)
	return e.s.Client.Process(e.within, e.cmd)
}

// Resend handles the error of a script that was sent by its SHA. It sends its source if the server does not know it. If
// the slot migrates, it sends the variant of the script that uses only the first key, if there is one.
func Resend(err error, s **protocol.Script, keys *[]string, send func(bySource bool) error) error {
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		err = send(true)
	}
	if (*s).FirstKey == nil || !redis.IsTryAgainError(err) {
		return err
	}
	*s, *keys = (*s).FirstKey, (*keys)[:1]
	if err = send(false); err != nil {
		return Resend(err, s, keys, send)
	}
	return nil
}
