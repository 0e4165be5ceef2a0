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
	return s.eval(ctx, request{Call: Call{Script: script, Keys: keys, Args: args}})
}

// EvalConfirmed is Eval by Confirm, if that is set. Nothing is sent together then.
func (s *Server) EvalConfirmed(ctx context.Context, script *protocol.Script, keys []string, args ...any) (protocol.Reply, error) {
	return s.eval(ctx, request{Call: Call{Script: script, Keys: keys, Args: args}, confirm: s.Confirm != nil})
}

func (s *Server) eval(ctx context.Context, r request) (protocol.Reply, error) {
	return s.batchesOf(ctx, r).Do(ctx, r)
}

// request is a request to run a script.
type request struct {
	Call
	confirm bool
}

type (
	member  = call.Member[request, protocol.Reply]
	batches = call.Batches[request, protocol.Reply]
)

// send sends the scripts of a batch. It reports whether the server has answered one.
func (s *Server) send(ctx context.Context, batch []*member) (answered bool) {
	if len(batch) == 1 {
		reply, err := s.sendAlone(ctx, batch[0])
		batch[0].End(reply, err)
		return err == nil
	}
	calls := make([]Call, len(batch))
	for i, m := range batch {
		calls[i] = m.Request.Call
		calls[i].Sending = m.Sending()
	}
	for i, r := range s.Batch(ctx, s.Client, calls, nil) {
		m := batch[i]
		if r.Err == nil {
			m.End(r.Reply, nil)
			answered = true
			continue
		}
		end := func() { m.End(s.handle(ctx, m, r.Err)) }
		if !s.Go(end) {
			end()
		}
	}
	return answered
}

func (s *Server) sendAlone(ctx context.Context, m *member) (protocol.Reply, error) {
	if c := m.Request; c.confirm {
		return s.Confirm(m.Caller(), ctx, m.Sending(), c.Script, c.Keys, c.Args)
	}
	reply, err := s.sendOnce(ctx, m, false)
	if err != nil {
		return s.handle(ctx, m, err)
	}
	return reply, nil
}

func (s *Server) sendOnce(ctx context.Context, m *member, bySource bool) (protocol.Reply, error) {
	c, sent := m.Request, time.Now()
	cmd := c.Script.Command(ctx, m.Sending(), bySource, c.Keys, c.Args)
	if err := s.Client.Process(ctx, cmd); err != nil {
		return protocol.Reply{}, err
	}
	return protocol.ParseReply(cmd.Val(), sent)
}

// handle handles the error of a script that was sent by its SHA. It may send it again, alone.
func (s *Server) handle(ctx context.Context, m *member, err error) (protocol.Reply, error) {
	var reply protocol.Reply
	c := &m.Request
	once := func(bySource bool) (err error) {
		reply, err = s.sendOnce(ctx, m, bySource)
		return err
	}
	err = Resend(err, &c.Script, &c.Keys, once)
	if err != nil && s.Failed != nil {
		err = s.Failed(m.Caller(), err, func() error { return Resend(once(false), &c.Script, &c.Keys, once) })
	}
	if err != nil {
		return protocol.Reply{}, Classify(err, m.Sending())
	}
	return reply, nil
}

// Resend handles the error of a script that was sent by its SHA, if there is one. It sends its source if the server does not
// know it. If the slot migrates, it sends the variant of the script that uses only the first key, if there is one.
func Resend(err error, s **protocol.Script, keys *[]string, send func(bySource bool) error) error {
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		err = send(true)
	}
	if (*s).FirstKey == nil || !redis.IsTryAgainError(err) {
		return err
	}
	*s, *keys = (*s).FirstKey, (*keys)[:1]
	return Resend(send(false), s, keys, send)
}
