package server

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// Eval runs a script in one round trip, maybe together with others. It returns as soon as ctx ends. The command then finishes
// in the background, within the timeouts of the client, so that no reply remains on a pooled connection.
func (s *Server) Eval(ctx context.Context, script *protocol.Script, keys []string, args ...any) (protocol.Reply, error) {
	e := evaluation{script: script, keys: keys, args: args}
	return s.batchesOf(ctx, e).Do(ctx, e)
}

// EvalConfirmed is Eval by Confirm, if that is set. Nothing is sent together then.
func (s *Server) EvalConfirmed(ctx context.Context, script *protocol.Script, keys []string, args ...any) (protocol.Reply, error) {
	e := evaluation{script: script, keys: keys, args: args, confirm: s.Confirm != nil}
	return s.batchesOf(ctx, e).Do(ctx, e)
}

// evaluation is a request that runs a script.
type evaluation struct {
	script  *protocol.Script
	keys    []string
	args    []any
	confirm bool

	cmd  protocol.Once
	sent time.Time
}

type (
	member  = call.Member[evaluation, protocol.Reply]
	batches = call.Batches[evaluation, protocol.Reply]
)

// send sends a batch.
func (s *Server) send(ctx context.Context, batch []*member) bool {
	if len(batch) > 1 {
		return s.sendTogether(ctx, batch)
	}
	m := batch[0]
	e := &m.Request
	if e.confirm {
		r, err := s.Confirm(m.Caller(), ctx, m.Sending(), e.script, e.keys, e.args)
		m.End(r, err)
		return err == nil
	}
	err := s.sendOnce(ctx, m, false)
	s.end(ctx, m, err)
	return err == nil
}

// sendTogether sends a batch in one pipeline. A script that fails is handled alone.
func (s *Server) sendTogether(ctx context.Context, batch []*member) bool {
	p := s.Client.Pipeline()
	sent := time.Now()
	for _, m := range batch {
		e := &m.Request
		e.cmd, e.sent = e.script.Command(ctx, m.Sending(), false, e.keys, e.args), sent
		_ = p.Process(ctx, e.cmd) // only queues
	}
	_, failed := p.Exec(ctx) // each command has its own error
	for _, m := range batch {
		if err := m.Request.cmd.Err(); err == nil || !s.Go(func() { s.end(ctx, m, err) }) {
			s.end(ctx, m, err)
		}
	}
	return failed == nil
}

func (s *Server) sendOnce(ctx context.Context, m *member, bySource bool) error {
	e := &m.Request
	e.sent = time.Now()
	e.cmd = e.script.Command(ctx, m.Sending(), bySource, e.keys, e.args)
	return s.Client.Process(ctx, e.cmd)
}

// end ends a request that was sent with that error. It may send it again.
func (s *Server) end(ctx context.Context, m *member, err error) {
	e := &m.Request
	again := func(bySource bool) error { return s.sendOnce(ctx, m, bySource) }
	if err != nil {
		err = Resend(err, &e.script, &e.keys, again)
	}
	if err != nil && s.Failed != nil {
		err = s.Failed(m.Caller(), err, func() error {
			if err := again(false); err != nil {
				return Resend(err, &e.script, &e.keys, again)
			}
			return nil
		})
	}
	if err != nil {
		m.End(protocol.Reply{}, Classify(err, m.Sending()))
		return
	}
	m.End(protocol.ParseReply(e.cmd.Val(), e.sent))
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
