package workload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock"
)

// Config configures a client.
type Config struct {
	URL  string        `json:"url"`
	TTL  time.Duration `json:"ttl"`
	Keys []string      `json:"keys"`
	// Slow is how many of the first keys are held for a long time.
	Slow int `json:"slow"`
	// Shared is how many of the keys before the last are locked by readers or for permits, if
	// the backend grants shares.
	Shared int    `json:"shared"`
	Seed   uint64 `json:"seed"`
	// First is the number of the first worker.
	First int `json:"first"`
	// Fast workers have many short leases, Holders long ones. Patients wait without
	// a deadline.
	Fast, Holders, Patients int
	// Readers and Writers wait for the first shared key and Permits for one to three permits of
	// the second, without a deadline.
	Readers, Writers, Permits int
	// Leaders campaign for the last key.
	Leaders int
	// Workers of all processes begin operations in the first Busy of each Period only. The
	// first Period began at Phase of the machine's clock. Zero: at any time.
	Period, Busy, Phase time.Duration
	// HangAfter is the operation (see Client.After) after which a process prints "hangs" and
	// waits until it is killed.
	HangAfter string
}

// Workers is how many goroutines the client uses.
func (c Config) Workers() int {
	return c.Fast + c.Holders + c.Patients + c.Readers + c.Writers + c.Permits + c.Leaders
}

// Client is a session of the service and its workers.
type Client struct {
	Config
	record   func(Op)
	resource Resource
	// Before is called before an operation of each kind: lock, try, extend, unlock.
	Before func(what string)
	// After is called when a worker has released a lock (unlock) or its term is over
	// (resign), before that is recorded.
	After func(what string)

	lock    *lock.Client
	calm    atomic.Bool
	inside  []atomic.Int64 // by worker: since when it is in a Lock
	granted []atomic.Int64 // by worker: when it was last granted anything
	failed  []atomic.Value // by worker: the last error of Lock or TryLock, a failure
	refused atomic.Int64
}

type eventsKey struct{}

// events are what an observer reports of one attempt: when it began to wait, and when
// its lease was lost.
type events struct {
	waited, lost atomic.Int64
	ending       func(at int64) // records the end of trust
}

func eventsOf(ctx context.Context) *events {
	e, ok := ctx.Value(eventsKey{}).(*events)
	if !ok {
		return &events{ending: func(int64) {}} // an attempt that no worker made
	}
	return e
}

// Options are options that the lock.Client given to New needs.
func Options(ttl time.Duration) []lock.Option {
	return []lock.Option{lock.WithTTL(ttl), lock.WithLogger(nil), lock.WithObserver(&lock.Observer{
		Waiting: func(ctx context.Context, _ lock.Event) { eventsOf(ctx).waited.CompareAndSwap(0, now()) },
		Lost: func(ctx context.Context, _ lock.Event) {
			if e, at := eventsOf(ctx), now(); e.lost.CompareAndSwap(0, at) {
				e.ending(at)
			}
		},
	})}
}

// New returns a client, which calls record from its workers.
func New(cfg Config, c *lock.Client, r Resource, record func(Op)) *Client {
	return &Client{Config: cfg, lock: c, resource: r, record: record, Before: func(string) {}, After: func(string) {}, inside: make([]atomic.Int64, cfg.Workers()), granted: make([]atomic.Int64, cfg.Workers()), failed: make([]atomic.Value, cfg.Workers())}
}

// Run returns when ctx has ended and all locks are released.
func (c *Client) Run(ctx context.Context) {
	var all sync.WaitGroup
	i := 0
	for _, role := range []struct {
		workers int
		turn    func(*worker, context.Context)
	}{
		{c.Fast, (*worker).fast},
		{c.Holders, (*worker).slow},
		{c.Patients, (*worker).patient},
		{c.Readers, (*worker).read},
		{c.Writers, (*worker).writeAlone},
		{c.Permits, (*worker).usePermits},
		{c.Leaders, (*worker).lead},
	} {
		for range role.workers {
			w := &worker{
				Client: c, id: c.First + i, inside: &c.inside[i], granted: &c.granted[i], failed: &c.failed[i],
				r: rand.New(rand.NewPCG(c.Seed, uint64(c.First+i))),
			}
			i++
			all.Go(func() {
				for w.awake(ctx) {
					role.turn(w, ctx)
				}
			})
		}
	}
	all.Wait()
}

// Calm makes all further leases short.
func (c *Client) Calm() { c.calm.Store(true) }

// Waits reports whether a Lock that was called before t is still waiting.
func (c *Client) Waits(before time.Time) bool {
	for i := range c.inside {
		if since := c.inside[i].Load(); since != 0 && since < Monotonic(before) {
			return true
		}
	}
	return false
}

// Served reports whether the session works: some worker, and each leader, was granted something after since.
func (c *Client) Served(since time.Time) bool {
	some := false
	for i := range c.granted {
		served := c.granted[i].Load() > Monotonic(since)
		if leads := i >= c.Workers()-c.Leaders; leads && !served {
			return false
		}
		some = some || served
	}
	return some
}

// failure is an error of Lock or TryLock and when it returned.
type failure struct {
	at  int64
	err string
}

// Unserved describes the workers without a grant after since, a line each.
func (c *Client) Unserved(since time.Time) string {
	var b strings.Builder
	for i := range c.granted {
		if c.granted[i].Load() > Monotonic(since) {
			continue
		}
		fmt.Fprintf(&b, "worker %d: ", c.First+i)
		if from := c.inside[i].Load(); from != 0 {
			fmt.Fprintf(&b, "in Lock or TryLock since %v after that; ", time.Duration(from-Monotonic(since)))
		}
		if f, ok := c.failed[i].Load().(failure); ok {
			fmt.Fprintf(&b, "last error %v after that: %s", time.Duration(f.at-Monotonic(since)), f.err)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Refused returns how many calls of Lock and TryLock got no grant.
func (c *Client) Refused() int64 { return c.refused.Load() }
