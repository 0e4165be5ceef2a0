package server

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

// Call is a call of a script in a batch.
type Call struct {
	Keys []string
	Args []any
}

// Result is the outcome of a call. Err is not classified.
type Result struct {
	Reply protocol.Reply
	Err   error
	Last  protocol.Once // the last command of the pipeline
}

// Batch sends the calls in one pipeline on c, and a second one if the server does not know the
// script. last returns a command that follows the calls; it may be nil.
func (s *Server) Batch(ctx context.Context, sending *call.Sending, c redis.UniversalClient, script *protocol.Script, calls []Call, last func(context.Context) protocol.Once) []Result {
	results := make([]Result, len(calls))
	todo := make([]int, len(calls))
	for i := range todo {
		todo[i] = i
	}
	for bySource := false; len(todo) > 0; bySource = true {
		p := c.Pipeline()
		cmds := make([]protocol.Once, len(todo))
		for j, i := range todo {
			// the first loads the script for the others, unless they are on other nodes
			cmds[j] = script.Command(ctx, sending, bySource && (j == 0 || s.Cluster != nil), calls[i].Keys, calls[i].Args)
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
			if !bySource && redis.HasErrorPrefix(err, "NOSCRIPT") {
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
