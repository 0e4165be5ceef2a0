package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
)

// once is a command that the client library never sends twice. So a request
// without an answer is always known to the driver, and only then can a duplicate
// arrive later, which the tombstone refuses. (A redirected command was not
// executed, and is sent on.)
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

func evalCmd(ctx context.Context, s *script, bySource bool, keys []string, args []any) once {
	a := make([]any, 0, 3+len(keys)+len(args))
	if bySource {
		a = append(a, "eval", s.src, len(keys))
	} else {
		a = append(a, "evalsha", s.sha, len(keys))
	}
	for _, k := range keys {
		a = append(a, k)
	}
	return once{redis.NewCmd(ctx, append(a, args...)...)}
}

// eval runs a script in one round trip. It returns as soon as ctx ends; the
// command then finishes in the background, within the client's own timeouts, so
// that no reply is left on a pooled connection.
func (b *Backend) eval(ctx context.Context, s *script, keys []string, args ...any) (reply, error) {
	return b.detached(ctx, func() (reply, error) {
		var c once
		var sent time.Time
		send := func(bySource bool) error {
			sent = time.Now()
			c = evalCmd(ctx, s, bySource, keys, args)
			return b.rdb.Process(ctx, c)
		}
		err := b.whileMigrating(ctx, func() error { return attemptScript(&s, &keys, send) })
		if err != nil {
			b.suspect(err)
			return reply{}, classify(err)
		}
		return parseReply(c.Val(), sent)
	})
}

// attemptScript sends a script by name, by source if the server does not know it, and the
// one that needs its first key alone where the others are being moved.
func attemptScript(s **script, keys *[]string, send func(bySource bool) error) error {
	err := send(false)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		err = send(true)
	}
	if (*s).lone == nil || !redis.IsTryAgainError(err) {
		return err
	}
	*s, *keys = (*s).lone, (*keys)[:1]
	return attemptScript(s, keys, send)
}

// evalWait is eval followed by WAIT on the same connection, in one round trip. It
// also returns how many replicas have the write.
func (b *Backend) evalWait(ctx context.Context, s *script, keys []string, args ...any) (r reply, got int, err error) {
	type result struct {
		reply
		got int
	}
	res, err := b.detachedAny(ctx, func() (any, error) {
		var sent time.Time
		var c, w once
		at, err := b.node(ctx, keys[0])
		send := func(bySource bool) error {
			sent = time.Now()
			c = evalCmd(ctx, s, bySource, keys, args)
			w = once{redis.NewCmd(ctx, "wait", b.opt.replicas, b.opt.replicaTimeout.Milliseconds())}
			p := at.client.Pipeline()
			if at.asking {
				_ = p.Process(ctx, once{redis.NewCmd(ctx, "asking")}) // good for the next command
			}
			_ = p.Process(ctx, c) // queued; errors come with Exec
			_ = p.Process(ctx, w)
			_, _ = p.Exec(ctx) // each command has its error
			return c.Err()
		}
		for redirects := 0; err == nil; redirects++ {
			err = b.whileMigrating(ctx, func() error { return attemptScript(&s, &keys, send) })
			next, ok := b.redirected(ctx, keys[0], err)
			if !ok || redirects >= maxRedirects {
				break
			}
			at, err = next, nil
		}
		if err != nil {
			b.suspect(err)
			return nil, classify(err)
		}
		r, perr := parseReply(c.Val(), sent)
		if perr != nil {
			return nil, backend.Uncertain(perr)
		}
		if w.Err() != nil {
			return nil, backend.Uncertain(w.Err())
		}
		n, _ := w.Val().(int64)
		return result{r, int(n)}, nil
	})
	if err != nil {
		return reply{}, 0, err
	}
	x := res.(result)
	return x.reply, x.got, nil
}

func (b *Backend) detached(ctx context.Context, f func() (reply, error)) (reply, error) {
	v, err := b.detachedAny(ctx, func() (any, error) { return f() })
	r, _ := v.(reply)
	return r, err
}

// detachedAny calls f and returns with its result, or as soon as ctx ends.
func (b *Backend) detachedAny(ctx context.Context, f func() (any, error)) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err // nothing was sent
	}
	if !b.enter() {
		return nil, backend.ErrClosed
	}
	if ctx.Done() == nil {
		defer b.wg.Done()
		return f()
	}
	type result struct {
		v   any
		err error
	}
	ch := make(chan result, 1)
	b.background(func() {
		v, err := f()
		ch <- result{v, err}
	})
	select {
	case r := <-ch:
		if end := ended(ctx); r.err != nil && end != nil && !errors.Is(r.err, end) {
			r.err = fmt.Errorf("%w: %w", r.err, end)
		}
		return r.v, r.err
	case <-ctx.Done():
		return nil, backend.Uncertain(ctx.Err())
	}
}

// background runs f, for which enter was called, on a goroutine that is kept for
// a while: a new one would have to grow its stack at each request.
func (b *Backend) background(f func()) {
	select {
	case b.jobs <- f:
		return
	default:
	}
	go func() {
		idle := time.NewTimer(workerIdle)
		defer idle.Stop()
		for {
			f()
			b.wg.Done()
			idle.Reset(workerIdle)
			select {
			case f = <-b.jobs:
			case <-idle.C:
				return
			case <-b.life.Done():
				return
			}
		}
	}()
}

const workerIdle = time.Second

// ended is the error of a context that ended, or whose deadline has passed: a
// socket's deadline is set from it, and may be noticed first.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return nil
}

// enter registers work that Close waits for. It is false after Close.
func (b *Backend) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.wg.Add(1)
	return true
}

// classify is the error of a failed request, ErrUncertain if it may have been
// executed.
func classify(err error) error {
	if err == nil {
		return nil
	}
	var server redis.Error
	var op *net.OpError
	switch {
	case errors.As(err, &server) && !midway(err): // refused: nothing was done
	case errors.As(err, &op) && op.Op == "dial": // nothing was sent; it names the address
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrClosed):
	default:
		return backend.Uncertain(failure(err))
	}
	return failure(err)
}

// midway tells an error raised inside a script, which may have written before.
func midway(err error) bool {
	s := err.Error()
	if !strings.Contains(s, "user_script") && !aclInScript(s) {
		return false
	}
	// these meet the first write of a script and no other
	for _, first := range []string{"OOM command not allowed", "READONLY ", "MISCONF ", "NOREPLICAS "} {
		if strings.Contains(s, first) {
			return false
		}
	}
	return true
}

func aclInScript(s string) bool {
	return strings.Contains(s, "The user executing the script") || strings.Contains(s, "ACL failure in script")
}

// failure explains an error of the client library.
func failure(err error) error {
	switch {
	case redis.IsPermissionError(err), aclInScript(err.Error()):
		return fmt.Errorf("redis: %w (what is needed stands in the documentation of package redislock, Permissions)", err)
	case errors.Is(err, redis.ErrPoolTimeout):
		return fmt.Errorf("redis: %w (raise pool_size)", err)
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w: %w", backend.ErrClosed, err)
	}
	return fmt.Errorf("redis: %w", err)
}

// wrongTypeError is that of a key that no lock can use.
func wrongTypeError(key, kind string) error {
	return fmt.Errorf("%w: redis key %.200q holds a %s, and a lock is a string: choose another name or prefix", backend.ErrInvalid, key, kind)
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
