package conformance

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// T is what a case runs with: it opens clients and closes them, and notes
// failures.
type T struct {
	ctx   context.Context // ends when the case must have finished
	h     *Harness
	o     *options
	c     *Case
	caps  backend.Capabilities
	probe backend.Backend // for looking at optional interfaces only
	start time.Time

	mu       sync.Mutex
	failures []string
	notes    []string // context of a failure
	cleanups []func(ctx context.Context)
	status   Status // set by notRun
	reason   string
	losses   map[string]time.Time // when an observer first reported a loss, by name of the lock
	ends     map[string]time.Time // when grants that are not renewed may be over, by name of the lock
	waits    waits
	stalled  string // which clients waited at the first failure
}

var keys atomic.Int64

// run is random, so that keys of an earlier run on the same service do no harm.
var run = func() string {
	var b [4]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}()

// key returns a fresh name.
func (t *T) key(what string) string {
	return fmt.Sprintf("conformance-%s-%d-%s", run, keys.Add(1), what)
}

// errorf notes a failure and goes on.
func (t *T) errorf(format string, args ...any) {
	if !t.failed() {
		t.noteStall()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.failures) < 10 {
		t.failures = append(t.failures, fmt.Sprintf(format, args...))
	}
}

// fatalf notes a failure and ends the case. It must be called in the case's own
// goroutine.
func (t *T) fatalf(format string, args ...any) {
	t.errorf(format, args...)
	runtime.Goexit()
}

// notRun ends the case because it turned out that it cannot be run here.
func (t *T) notRun(format string, args ...any) {
	t.mu.Lock()
	t.status, t.reason = NotRun, fmt.Sprintf(format, args...)
	t.mu.Unlock()
	runtime.Goexit()
}

// again ends the case because nothing could be learned from it. It is run again
// when no other case runs, and fails if that happens too often.
func (t *T) again(format string, args ...any) {
	t.mu.Lock()
	t.status, t.reason = inconclusive, fmt.Sprintf(format, args...)
	t.mu.Unlock()
	runtime.Goexit()
}

const inconclusive Status = "inconclusive"

// mostAgain is how often a case is run by itself that is inconclusive.
const mostAgain = 3

// notef adds to what is printed if the case fails.
func (t *T) notef(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.notes) < 30 {
		t.notes = append(t.notes, fmt.Sprintf("%8.3fs ", time.Since(t.start).Seconds())+fmt.Sprintf(format, args...))
	}
}

func (t *T) failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.failures) > 0
}

// endsAfter notes that a grant that was asked for now is not renewed.
func (t *T) endsAfter(ttl time.Duration, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ends == nil {
		t.ends = map[string]time.Time{}
	}
	t.ends[name] = time.Now().Add(ttl)
}

// endOf returns when the last grant of a lock may be over, far in the future for one that is renewed.
func (t *T) endOf(name string) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if end, ok := t.ends[name]; ok {
		return end
	}
	return time.Now().Add(time.Hour)
}

// later runs f when the case is over, last first.
func (t *T) later(f func(ctx context.Context)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

// rounds returns how often to repeat something in the short and the full tier.
func (t *T) rounds(short, full int) int {
	if t.o.full {
		return full
	}
	return short
}

func (t *T) expires() bool { return t.caps.Loss != backend.LossProcess }

// ttl returns a short TTL that the backend accepts and a busy machine can keep.
func (t *T) ttl() time.Duration { return t.clampTTL(time.Second) }

// longTTL returns a TTL that does not run out while a case runs, so that whatever
// comes in time came without its help.
func (t *T) longTTL() time.Duration { return t.clampTTL(5 * time.Minute) }

func (t *T) clampTTL(d time.Duration) time.Duration {
	d = max(d, t.caps.MinTTL)
	if t.caps.MaxTTL > 0 {
		d = min(d, t.caps.MaxTTL)
	}
	return d
}

// slack returns how late something may be that ought to happen at once.
func (t *T) slack() time.Duration { return t.h.slack() }

// newBackend returns an independent raw client, which the caller closes.
func (t *T) newBackend() backend.Backend {
	b, err := t.h.Open(t.ctx)
	if err != nil {
		t.fatalf("Open: want a client, got %v", err)
	}
	return b
}

// open returns an independent raw client.
func (t *T) open() backend.Backend {
	b := t.newBackend()
	t.later(func(ctx context.Context) { _ = b.Close(ctx) })
	return b
}

// client returns an independent client with a long TTL.
func (t *T) client(opts ...lock.Option) *lock.Client { return t.clientOf(t.newBackend(), opts...) }

func (t *T) clientOf(b backend.Backend, opts ...lock.Option) *lock.Client {
	own := []lock.Option{lock.WithLogger(nil), lock.WithTTL(t.longTTL()), lock.WithObserver(t.observer())}
	c, err := lock.New(b, slices.Concat(own, t.o.clients, opts)...)
	if err != nil {
		t.fatalf("New: want a client, got %v", err)
	}
	t.later(func(ctx context.Context) { _ = c.Close(ctx) })
	return c
}

// within runs f and fails if it has not returned after d.
func (t *T) within(d time.Duration, what string, f func()) {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		t.fatalf("%s: want it done within %v, it was still under way", what, d)
	}
}

// eventually polls cond until it holds, and fails with its last word after d.
func (t *T) eventually(d time.Duration, what string, cond func() error) {
	deadline := time.Now().Add(d)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := cond()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.fatalf("%s: want it within %v, last: %v", what, d, err)
		}
		time.Sleep(pause) // between two looks at a condition
	}
}

// locked is the outcome of a Lock that runs in a goroutine of its own.
type locked struct {
	lease *lock.Lease
	err   error
	at    time.Time // when Lock returned
}

// lockAsync starts a Lock.
func (t *T) lockAsync(ctx context.Context, m lock.Mutex) <-chan locked {
	out := make(chan locked, 1)
	go func() {
		l, err := m.Lock(ctx)
		out <- locked{l, err, time.Now()}
	}()
	return out
}

// await returns the next value of ch, and fails if there is none within d.
func await[V any](t *T, d time.Duration, what, want string, ch <-chan V) V {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case got := <-ch:
		return got
	case <-timer.C:
		t.fatalf("%s: want %s within %v, there was none", what, want, d)
	}
	panic("unreachable")
}

// end waits for a Lock that must return within d.
func (t *T) end(d time.Duration, what string, ch <-chan locked) locked {
	return await(t, d, what, "a result", ch)
}

// granted waits for a Lock that must succeed within d.
func (t *T) granted(d time.Duration, what string, ch <-chan locked) locked {
	got := await(t, d, what, "a grant", ch)
	if got.err != nil {
		t.fatalf("%s: want a grant, got %v", what, got.err)
	}
	return got
}

// mustLock locks, which must succeed at once.
func (t *T) mustLock(m lock.Mutex, what string) *lock.Lease {
	return t.granted(t.slack(), what, t.lockAsync(t.ctx, m)).lease
}

func (t *T) mustUnlock(l *lock.Lease, what string) {
	t.within(2*t.slack(), what, func() {
		if err := l.Unlock(t.ctx); err != nil {
			t.errorf("%s: want Unlock to return nil, got %v", what, err)
		}
	})
	if t.failed() {
		runtime.Goexit()
	}
}

// refused makes one attempt that must be refused with ErrLocked.
func (t *T) refused(m lock.Mutex, what string) {
	l, err := m.TryLock(t.ctx)
	switch {
	case err == nil:
		t.fatalf("%s: want ErrLocked, it was granted %s", what, leaseText(l))
	case !errors.Is(err, lock.ErrLocked):
		t.fatalf("%s: want ErrLocked, got %v", what, err)
	}
}

// free checks that a new client gets the key within d, and releases it.
func (t *T) free(c *lock.Client, key, what string, d time.Duration) {
	m := c.Mutex(key)
	t.eventually(d, what+": a new client gets the key", func() error {
		l, err := m.TryLock(t.ctx)
		if err != nil {
			return err
		}
		return l.Unlock(t.ctx)
	})
}

// request returns a fresh raw attempt.
func request(key string, ttl time.Duration) backend.Request {
	var id [16]byte
	_, _ = rand.Read(id[:])
	return backend.Request{Key: key, Owner: hex.EncodeToString(id[:]), TTL: ttl, Metadata: "conformance"}
}

// try makes a raw attempt that must be granted.
func (t *T) try(b backend.Backend, req backend.Request, what string) backend.Grant {
	g, err := b.TryAcquire(t.ctx, req)
	if err != nil {
		t.fatalf("%s: want TryAcquire to be granted, got %v", what, err)
	}
	if g == nil {
		t.fatalf("%s: TryAcquire returned neither a grant nor an error", what)
	}
	return g
}

// tryRefused makes a raw attempt that must be refused with ErrLocked.
func (t *T) tryRefused(b backend.Backend, req backend.Request, what string) {
	g, err := b.TryAcquire(t.ctx, req)
	switch {
	case err == nil:
		t.fatalf("%s: want TryAcquire to be refused with ErrLocked, it was granted token %d", what, g.Token())
	case !errors.Is(err, backend.ErrLocked):
		t.fatalf("%s: want TryAcquire to be refused with ErrLocked, got %v", what, err)
	}
}

// acquireRaw starts a raw Acquire of a key that is held, and returns when it waits: when the driver has called OnWait.
// waits gets a value for each further call of OnWait, errs the error of Acquire.
func (t *T) acquireRaw(ctx context.Context, w backend.Waiter, req backend.Request) (waits <-chan struct{}, errs <-chan error) {
	calls, end := make(chan struct{}, 8), make(chan error, 1)
	req.OnWait = func(*backend.LockedError) { calls <- struct{}{} }
	go func() { _, err := w.Acquire(ctx, req); end <- err }()
	select {
	case <-calls:
	case err := <-end:
		t.fatalf("raw Acquire of a held key: want it to wait, got %v", err)
	case <-time.After(t.slack()):
		t.fatalf("raw Acquire of a held key: want OnWait called within %v", t.slack())
	}
	return calls, end
}

func leaseText(l *lock.Lease) string {
	if l == nil {
		return "a nil lease"
	}
	if token, ok := l.Token(); ok {
		return fmt.Sprintf("token %d", token)
	}
	return "owner " + l.Owner()
}

// fences reports whether the backend has tokens.
func (t *T) fences() bool { return t.caps.Fencing >= backend.FencingMemory }

func indent(s string) string { return strings.ReplaceAll(s, "\n", "\n    ") }
