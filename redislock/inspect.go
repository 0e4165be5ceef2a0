package redislock

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
)

const scanCount = 500 // keys to a step of SCAN and to a pipeline

// Inspect tells who holds and who waits for a key.
func (b *Backend) Inspect(ctx context.Context, key string) (backend.Info, error) {
	k := b.keys(key)
	r, err := b.eval(ctx, inspectScript, []string{k.lock, k.queue, k.fence}, b.channelPrefix(), "")
	if err != nil {
		return backend.Info{}, err
	}
	if r.status == wrongType {
		return backend.Info{}, wrongTypeError(k.lock, r.str(0))
	}
	return info(key, r), nil
}

func info(name string, r reply) backend.Info {
	i := backend.Info{Name: name}
	if r.status == yes {
		h := holder(r.str(2), r.token(), r.left())
		h.Age = r.since(int64(h.Token))
		i.Holder = &h
	}
	for n := 3; n+1 < len(r.rest); n += 2 {
		owner, rest, _ := parseParty(r.str(n))
		i.Waiters = append(i.Waiters, backend.Party{Owner: owner, Metadata: afterSpace(rest), Age: r.since(r.num(n + 1))})
	}
	return i
}

// since is the time since a ticket was drawn: tokens and places in the queue are
// the server's microseconds, or more where its clock was set back. It is never too
// long, and zero if the ticket tells nothing.
func (r reply) since(ticket int64) time.Duration {
	if ticket <= 0 || ticket > r.us {
		return 0
	}
	return time.Duration(r.us-ticket) * time.Microsecond
}

// afterSpace is the metadata of a member, which stands after the ttl.
func afterSpace(s string) string {
	for i := range len(s) {
		if s[i] == ' ' {
			return s[i+1:]
		}
	}
	return ""
}

// Break frees a key whoever holds it.
func (b *Backend) Break(ctx context.Context, key string) (*backend.Holder, error) {
	k := b.keys(key)
	r, err := b.eval(ctx, breakScript, []string{k.lock, k.queue, k.fence}, b.channelPrefix(), "")
	switch {
	case err != nil:
		return nil, err
	case r.status == wrongType:
		return nil, wrongTypeError(k.lock, r.str(0))
	case r.status != yes:
		return nil, nil
	}
	h := holder(r.str(2), r.token(), r.left())
	return &h, nil
}

// List lists the held keys of the prefix. With an empty prefix any string on the
// server might be a lock, so only those taken by this library are listed.
func (b *Backend) List(ctx context.Context, yield func(backend.Info) bool) error {
	masters := []redis.UniversalClient{b.rdb}
	if b.cluster != nil {
		masters = masters[:0]
		var mu sync.Mutex
		err := b.cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			masters = append(masters, c)
			return nil
		})
		if err != nil {
			return failure(err)
		}
	}
	seen := map[string]bool{} // SCAN repeats keys, and a slot may move
	for _, c := range masters {
		more, err := b.list(ctx, c, seen, yield)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

func (b *Backend) list(ctx context.Context, c redis.UniversalClient, seen map[string]bool, yield func(backend.Info) bool) (bool, error) {
	pattern := "*"
	if b.opt.prefix != "" {
		pattern = globEscape(b.opt.prefix+":") + "*"
	}
	for cursor := uint64(0); ; {
		v, err := b.detachedAny(ctx, func() (any, error) {
			found, next, err := c.ScanType(ctx, cursor, pattern, scanCount, "string").Result()
			if err != nil {
				return nil, failure(err)
			}
			cursor = next
			return b.inspectAll(ctx, c, found, seen)
		})
		if err != nil {
			return false, err
		}
		for _, i := range v.([]backend.Info) {
			if !yield(i) {
				return false, nil
			}
		}
		if cursor == 0 {
			return true, nil
		}
	}
}

// inspectAll is one round trip.
func (b *Backend) inspectAll(ctx context.Context, c redis.UniversalClient, found []string, seen map[string]bool) ([]backend.Info, error) {
	var names []string
	for _, key := range found {
		if name, ok := lockName(b.opt.prefix, key); ok && !seen[key] {
			seen[key] = true
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return []backend.Info{}, nil
	}
	for bySource := false; ; bySource = true {
		p := c.Pipeline()
		cmds := make([]once, len(names))
		for i, name := range names {
			k := b.keys(name)
			// by source only the first: it loads the script for the others
			cmds[i] = evalCmd(ctx, inspectScript, bySource && i == 0, []string{k.lock, k.queue, k.fence}, []any{b.channelPrefix(), ""})
			_ = p.Process(ctx, cmds[i]) // queued; errors come with Exec
		}
		_, _ = p.Exec(ctx) // each command has its error
		if !bySource && redis.HasErrorPrefix(cmds[0].Err(), "NOSCRIPT") {
			continue
		}
		infos := make([]backend.Info, 0, len(names))
		for i, cmd := range cmds {
			if _, moved := redis.IsMovedError(cmd.Err()); moved {
				continue // its new master lists it
			}
			if cmd.Err() != nil {
				return nil, failure(cmd.Err())
			}
			r, err := parseReply(cmd.Val(), time.Time{})
			if err != nil {
				return nil, err
			}
			if r.status != yes { // freed, or of another type by now
				continue
			}
			in := info(names[i], r)
			if b.opt.prefix == "" && in.Holder.Foreign {
				continue
			}
			infos = append(infos, in)
		}
		return infos, nil
	}
}
