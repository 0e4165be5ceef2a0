package memcachelock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/record"
)

// Backend is the Memcached driver. Make one with New or lock.Open.
type Backend struct {
	*record.Locks
	*record.Queue
	nodes       servers
	ownsClients bool // Close closes them
	opt         options
	exchanges   record.Exchanges
}

var (
	_ backend.Backend      = (*Backend)(nil)
	_ backend.Waiter       = (*Backend)(nil)
	_ backend.Inspector    = (*Backend)(nil)
	_ backend.Breaker      = (*Backend)(nil)
	_ backend.Pinger       = (*Backend)(nil)
	_ backend.BatchRenewer = (*Backend)(nil)
	_ record.Timer         = store{}
)

// The average interval at which the first waiter of a process polls is fastPoll after a change of the
// holder, and doubles up to slowPoll.
const (
	fastPoll = 4 * time.Millisecond
	slowPoll = 200 * time.Millisecond
)

func open(ctx context.Context, nodes servers, o options) (*Backend, error) {
	b := &Backend{nodes: nodes, opt: o}
	b.Locks = record.New(store{b, false}, record.Options{Held: store{b, true}})
	b.Queue = &record.Queue{Locks: b.Locks, Poll: slowPoll, FastPoll: fastPoll}
	if err := b.probe(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// probe verifies that all servers answer, and that they count versions: with the option --disable-cas all of them are
// zero, and so is the condition of each write.
func (b *Backend) probe(ctx context.Context) error {
	item := &memcache.Item{Key: b.opt.prefix + ":", Value: []byte("probe"), Expiration: expiration(time.Minute)}
	return b.each(ctx, func(client *memcache.Client) error {
		if err := client.Ping(); err != nil {
			return err
		}
		if err := client.Set(item); err != nil {
			return err
		}
		got, err := client.Get(item.Key)
		if err != nil {
			return err
		}
		if got.CasID == 0 {
			return fmt.Errorf("%w server: it runs with --disable-cas: want CAS", backend.ErrInvalid)
		}
		return nil
	})
}

// each makes an exchange with each server until one fails.
func (b *Backend) each(ctx context.Context, request func(*memcache.Client) error) error {
	for _, s := range b.nodes {
		if err := b.do(ctx, s.node, false, func() error { return request(s.client) }); err != nil {
			return err
		}
	}
	return nil
}

// Capabilities returns what the backend guarantees.
func (b *Backend) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Name:     "memcached",
		Scope:    backend.ScopeNetwork,
		Loss:     backend.LossTTL,
		Order:    backend.Unordered,
		Wake:     backend.WakePoll,
		Fencing:  backend.FencingMemory,
		MinTTL:   10 * time.Millisecond,
		Lateness: record.Lateness,
		MaxTTL:   maxTTL,
		Caveats: []string{
			"A restart, flush_all or an eviction of a server removes locks: two clients hold one until the next renewal of the first. Memory must suffice.",
			"With --disable-evictions a server that is full refuses writes: new locks, and for as long as it is full also renewals and releases, so that leases end.",
			"Tokens begin with the clock of a client when a server does not know a lock, or has not for the margin: they rise over that if clocks of clients differ by less than the time since then.",
			"A list of servers shares the keys among them. All clients need the same list; it is no replication.",
			caveatMargin, record.CaveatClockRates, backend.CaveatSnapshot,
		},
	}
}

const caveatMargin = "A client takes the lock of a holder that died when it has watched it for a TTL, and a lock for which a " +
	"dead process waits when it has watched it for a second. A TryLock of a new process cannot, until the margin has passed " +
	"too (10 minutes, see WithMargin)."

// maxTTL leaves room for the margin.
const maxTTL = month - 25*time.Hour

// Ping makes one round trip to each server.
func (b *Backend) Ping(ctx context.Context) error { return b.each(ctx, (*memcache.Client).Ping) }

// Close waits for the exchanges in flight, which their timeout bounds. It closes the connections
// of clients that Open has made.
func (b *Backend) Close(ctx context.Context) error {
	err := b.exchanges.Close(ctx)
	if b.ownsClients {
		err = errors.Join(err, b.nodes.close())
	}
	return err
}
