package redislock

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/redislock/internal/protocol"
	"github.com/interlock-go/lock/redislock/internal/quorum"
	"github.com/interlock-go/lock/redislock/internal/server"
)

func init() { quorum.NewNode = newNode }

// nodeService is the service of a node of a Redlock. It has a fence counter and a channel for each lock, and no queue.
type nodeService struct {
	*service
	o      quorum.Options
	events quorum.Events
	life   []any // of the arguments of an attempt
}

func newNode(client *redis.Client, o quorum.Options, events quorum.Events) quorum.Node {
	s := newService(client, options{prefix: o.Prefix, allowEviction: o.AllowEviction})
	n := &nodeService{service: s, o: o, events: events}
	s.scripts, s.quorum, s.events, s.srv.Own = nodeScripts, n, nodeEvents{events}, o.Own
	run := "1"
	if o.Durable {
		run = "0"
	}
	n.life = []any{o.Retention.Milliseconds(), run}
	s.srv.Go(n.listen)
	return n
}

// listen subscribes the channel of this process, as soon as the server can be reached.
func (n *nodeService) listen() {
	c := n.subs.use(n.channel, "")
	for c.wait(n.srv.Context()) != nil && n.srv.Context().Err() == nil {
		call.Sleep(n.srv.Context(), maxBackoff)
	}
}

// Open implements quorum.Node.
func (n *nodeService) Open(ctx context.Context) (server.Findings, error) {
	return n.srv.Probe(ctx, append(n.scripts.all(), markScript), n.o.AllowEviction)
}

// Acquire implements quorum.Node.
func (n *nodeService) Acquire(ctx context.Context, req backend.Request, least uint64) (quorum.Answer, error) {
	more := append([]any{strconv.FormatUint(least, 10)}, n.life...)
	ans, r, err := n.acquire(ctx, queue.Attempt{Request: req}, more)
	of := 7
	if ans.Granted {
		of = 5
	}
	return quorum.Answer{Answer: ans, Life: quorum.Life{Now: ans.Now, Run: r.Str(of), Marker: r.Str(of + 1)}}, err
}

// End implements quorum.Node.
func (n *nodeService) End(ctx context.Context, e queue.End) quorum.Ended {
	if e.Kind == queue.Break {
		return quorum.Ended{Ended: n.breakGrants(ctx, e)}
	}
	c := n.ending(e)
	r, err := n.srv.Eval(ctx, n.scripts.end, c.Keys, c.Args...)
	return quorum.Ended{Ended: ended(r, err), Waiting: int(r.Num(1))}
}

// Mark implements quorum.Node.
func (n *nodeService) Mark(ctx context.Context, seen quorum.Life, marker string) (quorum.Life, error) {
	r, err := n.srv.Eval(ctx, markScript, []string{n.proc.Marker()}, seen.Run, seen.Marker, marker)
	return quorum.Life{Now: micros(r.US), Run: r.Str(0), Marker: r.Str(1)}, err
}

// Ping implements quorum.Node.
func (n *nodeService) Ping(ctx context.Context) error { return n.srv.Ping(ctx) }

// Go and Context implement quorum.Node.
func (n *nodeService) Go(f func()) bool         { return n.srv.Go(f) }
func (n *nodeService) Context() context.Context { return n.srv.Context() }

// released reports the message <owner> <lease in ms> <processes> <key>, whose first word is owner.
func (n *nodeService) released(owner, rest string) {
	f := strings.SplitN(rest, " ", 3)
	if len(f) != 3 {
		return
	}
	if key, ok := protocol.LockName(n.proc.Prefix, f[2]); ok {
		n.events.Released(key, owner, protocol.OfMillis(protocol.Number(f[0])), int(protocol.Number(f[1])))
	}
}

// nodeEvents are the events of a service without a queue.
type nodeEvents struct{ quorum.Events }

func (nodeEvents) Granted(queue.Grant)             {}
func (nodeEvents) LeaseEnds(string, time.Duration) {}
func (nodeEvents) Asked(string, string)            {}
func (nodeEvents) Removed(string, string)          {}
func (e nodeEvents) Interrupted(string)            { e.Events.Interrupted() }
