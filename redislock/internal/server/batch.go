package server

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// Call is a call of a script.
type Call struct {
	Script  *protocol.Script
	Keys    []string
	Args    []any
	Sending *call.Sending // in a batch
}

// Result is the outcome of a call. Err is not classified.
type Result struct {
	Reply protocol.Reply
	Err   error
	Last  protocol.Once // the last command of the pipeline
}

// Batch sends the calls in one pipeline on c, and a second one with those whose script the server does not know. last
// returns a command that follows the calls; it may be nil.
func (s *Server) Batch(ctx context.Context, c redis.UniversalClient, calls []Call, last func(context.Context) protocol.Once) []Result {
	results := make([]Result, len(calls))
	todo := make([]int, len(calls))
	for i := range todo {
		todo[i] = i
	}
	loaded := map[*protocol.Script]bool{}
	for unknown := false; len(todo) > 0; unknown = true {
		p := c.Pipeline()
		cmds := make([]protocol.Once, len(todo))
		for j, i := range todo {
			of := calls[i]
			bySource := unknown && (!loaded[of.Script] || s.Cluster != nil) // the others may be on other nodes
			if bySource {
				loaded[of.Script] = true
			}
			cmds[j] = of.Script.Command(ctx, of.Sending, bySource, of.Keys, of.Args)
			_ = p.Process(ctx, cmds[j]) // only queues
		}
		var end protocol.Once
		if last != nil {
			end = last(ctx)
			_ = p.Process(ctx, end)
		}
		sent := time.Now()
		_, _ = p.Exec(ctx) // each command has its own error
		var again []int
		for j, i := range todo {
			err := cmds[j].Err()
			if !unknown && redis.HasErrorPrefix(err, "NOSCRIPT") {
				again = append(again, i)
				continue
			}
			results[i] = Result{Err: err, Last: end}
			if err == nil {
				results[i].Reply, results[i].Err = protocol.ParseReply(cmds[j].Val(), sent)
			}
		}
		todo = again
	}
	return results
}
