package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/redislock/internal/protocol"
	"github.com/interlock-go/lock/redislock/internal/server"
)

// service is the queue.Service: a script each.
type service struct {
	srv     *server.Server
	proc    protocol.Process
	opt     options
	subs    *subscriptions
	events  queue.Events // set before the first message can arrive
	scripts *scripts
	quorum  *nodeService // nil if the server is no node of a Redlock

	channelPrefix, channel string // of proc

	reloading atomic.Bool // reloadAfter reloads the slot map of the cluster
}

var (
	_ queue.Service = (*service)(nil)
	_ queue.Pusher  = (*service)(nil)
)

func newService(client redis.UniversalClient, o options) *service {
	kind := protocol.PublishAddress
	if _, ok := client.(*redis.ClusterClient); ok {
		kind = protocol.ShardedAddress
	}
	b := &service{srv: server.New(client), proc: protocol.NewProcess(o.prefix, kind), opt: o, scripts: theScripts}
	b.channelPrefix, b.channel = b.proc.ChannelPrefix(), b.proc.Channel()
	if b.srv.Failed = b.requestFailed; o.replicas > 0 {
		b.srv.Confirm = b.evalWait
	}
	b.subs = newSubscriptions(b)
	return b
}

var errReplicas = errors.New("redis: too few replicas")

// Acquire implements queue.Service.
func (b *service) Acquire(ctx context.Context, a queue.Attempt) (queue.Answer, error) {
	ans, _, err := b.acquire(ctx, a, nil)
	return ans, err
}

// acquire sends an attempt, with more arguments for a node of a Redlock, whose marker is another key then.
func (b *service) acquire(ctx context.Context, a queue.Attempt, more []any) (queue.Answer, protocol.Reply, error) {
	mode := "1"
	if a.Mode == queue.NoQueue {
		mode = "0"
	}
	l := b.listenerFor(a)
	keys := b.keysOf(a.Key, a.Owner)
	args := protocol.Texts(b.channelPrefix, b.proc.Address, a.Owner, millis(a.TTL), mode, formatShare(a.Share), a.Metadata)
	if more != nil {
		keys, args = append(keys, b.proc.Marker()), append(args, more...)
	}
	r, err := b.srv.EvalConfirmed(ctx, b.scripts.acquire, keys, args...)
	var pass time.Duration // of the replies before
	for err == nil && r.Status == again {
		pass = queue.Sooner(pass, protocol.OfMillis(r.Num(0)))
		r, err = b.srv.EvalConfirmed(ctx, b.scripts.acquire, keys, args...)
	}
	switch {
	case redis.IsTryAgainError(err): // the slot migrates
		return queue.Answer{Pass: pass}, r, queue.Retry(err)
	case err != nil:
		return queue.Answer{Pass: pass}, r, err
	}
	ans := queue.Answer{Sent: r.Sent, Now: micros(r.US)}
	switch r.Status {
	case wasRefused:
		ans.Refused = true
		return ans, r, nil
	case wrongType:
		return ans, r, wrongTypeError(r)
	}
	ans.Left, ans.NoPlace = protocol.OfMillis(r.Num(0)), r.Num(2) == 1
	ans.Pass = queue.Sooner(pass, protocol.OfMillis(r.Num(1)))
	if r.Status == yes {
		if r.Replicas < b.opt.replicas {
			return ans, r, b.unacknowledged(ctx, a, r.Replicas)
		}
		ans.Granted, ans.Token, ans.Slots = true, uint64(max(r.Num(3), 0)), parseSlots(r.Str(4))
		return ans, r, nil
	}
	ans.Watch, ans.Ask = r.Num(3) == 1, micros(r.Num(4))
	ans.Holder = parseHolder(r.Str(6), r.Num(0), r.US)
	if l != nil && r.Num(5) == 0 { // subscribed on another server than the one that replied
		call.Sleep(ctx, minBackoff)
		b.subs.lost(l, errNotDelivered)
	}
	return ans, r, nil
}

// listenerFor returns the listener on which the events of an attempt that waits are to arrive, nil if there is none.
func (b *service) listenerFor(a queue.Attempt) *listener {
	if a.Mode == queue.NoQueue {
		return nil
	}
	return b.subs.listenerOf(b.channelOf(a.Key))
}

// unacknowledged releases a grant that too few replicas have.
func (b *service) unacknowledged(ctx context.Context, a queue.Attempt, replicas int) error {
	err := b.tooFewReplicas(replicas)
	if r := b.end(ctx, queue.End{Request: a.Request, Kind: queue.Release}); r.Err != nil {
		return queue.Final(backend.Uncertain(fmt.Errorf("%w; and releasing: %w", err, r.Err)))
	}
	return queue.Final(backend.NotExecuted(err))
}

// Renew implements queue.Service. Many renewals are one pipeline, and one WAIT with WithWaitReplicas. In a cluster they are
// not: the pipeline would wait for all nodes, and a dead node delay the renewals on the others.
func (b *service) Renew(ctx context.Context, holds []queue.Hold) []queue.Renewed {
	all := make([]queue.Renewed, len(holds))
	if len(holds) == 1 {
		c := b.renewal(holds[0])
		r, err := b.srv.EvalConfirmed(ctx, b.scripts.renew, c.Keys, c.Args...)
		if err == nil && r.Status == heldByShares {
			r, err = b.srv.EvalConfirmed(ctx, b.scripts.renewKey, []string{c.Keys[0], c.Keys[3], c.Keys[4]}, c.Args...)
		}
		all[0] = b.renewed(r, err)
		return all
	}
	if b.srv.Cluster != nil {
		err := fmt.Errorf("redis cluster: renewing many at once: %w", errors.ErrUnsupported)
		return slices.Repeat([]queue.Renewed{{Err: err}}, len(holds))
	}
	calls := make([]server.Call, len(holds))
	for i, h := range holds {
		calls[i] = b.renewal(h)
	}
	var wait func(context.Context) protocol.Once
	if b.opt.replicas > 0 {
		wait = b.waitCommand
	}
	for i, r := range b.batch(ctx, calls, wait) {
		if r.Err == nil && wait != nil {
			r.Reply.Replicas = acknowledged(r.Last)
			if err := r.Last.Err(); err != nil {
				r.Err = backend.Uncertain(server.Failure(err))
			}
		}
		all[i] = b.renewed(r.Reply, r.Err)
	}
	return all
}

func (b *service) renewal(h queue.Hold) server.Call {
	exactly := "0"
	if h.Exactly {
		exactly = "1"
	}
	c := server.Call{
		Script: b.scripts.renew, Keys: b.keysOf(h.Key, ""),
		Args: protocol.Texts(b.channelPrefix, b.proc.Address, h.Owner, millis(h.TTL), exactly),
	}
	if b.quorum != nil {
		c.Args = append(c.Args, b.channelOf(h.Key))
	}
	return c
}

func (b *service) renewed(r protocol.Reply, err error) queue.Renewed {
	switch {
	case err != nil:
	case r.Status == protocol.No:
		err = fmt.Errorf("%w: the redis key is not ours any more", backend.ErrLost)
	case r.Replicas < b.opt.replicas:
		err = backend.Uncertain(b.tooFewReplicas(r.Replicas)) // the master has extended the lease
	}
	return queue.Renewed{Sent: r.Sent, Now: micros(r.US), Pass: protocol.OfMillis(r.Num(0)), Err: err}
}

// End implements queue.Service. Many ends are one pipeline; in a cluster, one to each node.
func (b *service) End(ctx context.Context, ends []queue.End) []queue.Ended {
	if len(ends) == 1 {
		return []queue.Ended{b.end(ctx, ends[0])}
	}
	all := make([]queue.Ended, len(ends))
	var at []int
	var calls []server.Call
	for i, e := range ends {
		if e.Kind == queue.Break || e.Kind == queue.Downgrade {
			all[i] = b.end(ctx, e)
			continue
		}
		at, calls = append(at, i), append(calls, b.ending(e))
	}
	for i, r := range b.batch(ctx, calls, nil) {
		all[at[i]] = ended(r.Reply, r.Err)
	}
	return all
}

func (b *service) end(ctx context.Context, e queue.End) queue.Ended {
	switch e.Kind {
	case queue.Break:
		return b.breakGrants(ctx, e)
	case queue.Downgrade:
		if e.Share.Capacity > 0 {
			return queue.Ended{Err: backend.Invalid("share", e.Share.String(), "an exclusive grant or a reader")}
		}
		c := b.ending(e)
		r, err := b.srv.EvalConfirmed(ctx, b.scripts.end, c.Keys, c.Args...)
		d := ended(r, err)
		if err == nil && d.Held && r.Replicas < b.opt.replicas {
			d.Err = backend.Uncertain(b.tooFewReplicas(r.Replicas)) // the next call completes it
		}
		return d
	}
	c := b.ending(e)
	r, err := b.srv.Eval(ctx, b.scripts.end, c.Keys, c.Args...)
	return ended(r, err)
}

func ended(r protocol.Reply, err error) queue.Ended {
	if err == nil && r.Status == wrongType {
		err = wrongTypeError(r)
	}
	return queue.Ended{Now: micros(r.US), Held: r.Status == yes, Pass: protocol.OfMillis(r.Num(0)), Err: err}
}

func (b *service) ending(e queue.End) server.Call {
	late, kind := "0", ""
	if e.Late {
		late = tombstoneMillis
	}
	member := "" // the script searches the queue
	switch {
	case e.Kind == queue.Downgrade:
		kind = "d"
	case e.Kind == queue.Abandon && e.TTL > 0: // a grant has no place
		member = b.member(e.Request)
	}
	c := server.Call{
		Script: b.scripts.end, Keys: b.keysOf(e.Key, e.Owner),
		Args: protocol.Texts(b.channelPrefix, b.proc.Address, e.Owner, late, member, kind),
	}
	if b.quorum != nil {
		c.Args = append(c.Args, b.channelOf(e.Key))
	}
	return c
}

// member returns the member of the queue for an attempt.
func (b *service) member(req backend.Request) string {
	m := b.proc.OwnerAddress(req.Owner) + " " + millis(req.TTL) + formatShare(req.Share)
	if req.Metadata != "" {
		m += " " + req.Metadata
	}
	return m
}

func (b *service) breakGrants(ctx context.Context, e queue.End) queue.Ended {
	keys := b.keysOf(e.Key, e.Owner)
	args := protocol.Texts(b.channelPrefix, e.Owner)
	if b.quorum != nil {
		args = append(args, b.channelOf(e.Key))
	}
	r, err := b.srv.Eval(ctx, b.scripts.breaks, keys, args...)
	if err == nil && r.Status == wrongType {
		err = wrongTypeError(r)
	}
	d := queue.Ended{Now: micros(r.US), Held: r.Status == yes, Pass: protocol.OfMillis(r.Num(1)), Err: err}
	if err == nil && (r.Status == yes || r.Status == other) {
		h := parseHolder(r.Str(2), r.Num(0), r.US)
		d.Holder = &h
	}
	return d
}

// Pass implements queue.Service.
func (b *service) Pass(ctx context.Context, key string, leaves bool) (queue.Passed, error) {
	leaving := ""
	if leaves {
		leaving = "1"
	}
	r, err := b.srv.Eval(ctx, b.scripts.pass, b.keysOf(key, ""), protocol.Texts(b.channelPrefix, leaving)...)
	return queue.Passed{Now: micros(r.US), Pass: protocol.OfMillis(r.Num(0))}, err
}

// Close implements queue.Service. It does not close a client that was passed to New.
func (b *service) Close(ctx context.Context) error {
	b.srv.Stop()
	b.subs.close()
	return b.srv.Close(ctx)
}

// batch sends the calls together. The errors of the results are classified.
func (b *service) batch(ctx context.Context, calls []server.Call, last func(context.Context) protocol.Once) []server.Result {
	if len(calls) == 0 {
		return nil
	}
	results, err := call.Detached(ctx, b.srv.Life, func(ctx context.Context, sending *call.Sending) ([]server.Result, error) {
		for i := range calls {
			calls[i].Sending = sending
		}
		results := b.srv.Batch(ctx, b.srv.Client, calls, last)
		for i := range results {
			b.failed(results[i].Err)
			results[i].Err = server.Classify(results[i].Err, sending)
		}
		return results, nil
	})
	if err != nil {
		return slices.Repeat([]server.Result{{Err: err}}, len(calls))
	}
	return results
}

// Use implements queue.Pusher. The channel of a process is always subscribed.
func (b *service) Use(key string) (stop func()) {
	if b.srv.Cluster == nil && b.quorum == nil {
		return func() {}
	}
	c := b.subs.use(b.channelOf(key), key)
	return func() { c.unuse(key) }
}

// Listening implements queue.Pusher.
func (b *service) Listening(key string) bool {
	c := b.subs.get(b.channelOf(key))
	return c != nil && c.listening(b.srv.Context())
}

// Listen implements queue.Pusher.
func (b *service) Listen(ctx context.Context, key string) error {
	return b.subs.get(b.channelOf(key)).wait(ctx)
}

// Doubt implements queue.Pusher.
func (b *service) Doubt(key string) {
	if l := b.subs.listenerOf(b.channelOf(key)); l != nil {
		b.subs.lost(l, errNotDelivered)
	}
}

// channelOf returns the channel on which this process is notified about a key.
func (b *service) channelOf(key string) string {
	switch {
	case b.srv.Cluster != nil:
		return b.proc.Keys(key).Channel(b.proc.Address)
	case b.quorum != nil:
		return b.proc.Released(protocol.LockKey(b.proc.Prefix, key))
	}
	return b.channel
}

// keysOf returns the keys of a script: of the lock, the queue, the fence counter, the holders of shares, the ends of their
// leases, and the tombstone of an attempt. All but the fence counter are parts of one string.
func (b *service) keysOf(key, owner string) []string {
	lock := protocol.LockKey(b.proc.Prefix, key)
	text := "{" + lock + "}:q{" + lock + "}:h{" + lock + "}:e{" + lock + "}:x:" + owner
	n := len(lock) + len("{}:q")
	fence := b.proc.Fence(lock)
	if b.quorum != nil { // of the lock, so that the tokens of the nodes are the same whatever else happens
		fence = text[:n-1] + "f"
	}
	return []string{lock, text[:n], fence, text[n : 2*n], text[2*n : 3*n], text[3*n:]}
}

// tombstoneMillis is how long the late requests of an attempt are refused.
var tombstoneMillis = millis(protocol.TombstoneTTL)

// millis returns d in ms, rounded up: a lease must not be shorter than requested.
func millis(d time.Duration) string { return strconv.FormatInt(protocol.Millis(d), 10) }
