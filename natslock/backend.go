package natslock

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/record"
)

// Backend is the NATS driver. Make one with New or lock.Open.
type Backend struct {
	*record.Locks
	*record.Queue
	conn     *nats.Conn
	ownsConn bool // Close closes it
	js       jetstream.JetStream
	bucket   string
	config   jetstream.StreamConfig // of the bucket
	opt      options

	mu         sync.Mutex // guards the next three fields
	watches    map[*watch]struct{}
	session    context.Context // ends when the connection breaks, and with Close
	endSession context.CancelFunc

	elections *nats.Subscription // of leaders of the stream
	states    chan nats.Status   // of the connection
	done      chan struct{}      // closed when watchConnection has ended
	ended     context.Context    // of requests after Close
	end       context.CancelFunc
}

var (
	_ backend.Backend   = (*Backend)(nil)
	_ backend.Waiter    = (*Backend)(nil)
	_ backend.Inspector = (*Backend)(nil)
	_ backend.Lister    = (*Backend)(nil)
	_ backend.Breaker   = (*Backend)(nil)
	_ backend.Pinger    = (*Backend)(nil)
	_ record.Timer      = store{}
)

// pollPause is the average interval at which a waiter reads its key although it is
// notified of changes: a notification may be lost.
const pollPause = 10 * time.Second

func open(ctx context.Context, conn *nats.Conn, bucket string, o options) (*Backend, error) {
	js, err := jetstream.New(conn)
	if o.domain != "" {
		js, err = jetstream.NewWithDomain(conn, o.domain)
	}
	if err != nil {
		return nil, err
	}
	b := &Backend{conn: conn, js: js, bucket: bucket, opt: o, watches: map[*watch]struct{}{}, done: make(chan struct{})}
	b.ended, b.end = context.WithCancel(context.Background())
	b.session, b.endSession = context.WithCancel(b.ended)
	b.Locks = record.New(store{b}, record.Options{Token: revision})
	b.Queue = &record.Queue{Locks: b.Locks, Watch: b.watch, Poll: pollPause}
	b.states = conn.StatusChanged(nats.CONNECTED, nats.RECONNECTING)
	go b.watchConnection()
	if err = b.prepare(ctx); err == nil {
		err = b.watchElections(ctx)
	}
	if err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
}

// revision is the fencing token of a version.
func revision(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64) // it was made from a number
	return n
}

// Capabilities returns what the backend guarantees.
func (b *Backend) Capabilities() backend.Capabilities {
	c := backend.Capabilities{
		Name:     "nats",
		Scope:    backend.ScopeNetwork,
		Loss:     backend.LossTTL,
		Order:    backend.Unordered,
		Wake:     backend.WakePush,
		Fencing:  b.fencing(),
		MinTTL:   10 * time.Millisecond,
		Lateness: record.Lateness,
		MaxTTL:   maxTTL(b.config.MaxAge),
		Caveats: []string{
			"Servers write to the disk every two minutes (sync_interval): a power failure of the machine of a single server, or of a majority, may lose locks and repeat tokens.",
			record.CaveatDeadHolder, record.CaveatClockRates, backend.CaveatSnapshot,
		},
	}
	if b.config.Storage == jetstream.MemoryStorage {
		c.Caveats = append(c.Caveats, "The bucket is in memory: a restart of its servers loses locks, and two clients hold one until the next renewal of the first.")
	}
	if b.config.MaxBytes > 0 {
		c.Caveats = append(c.Caveats, "The bucket has max_bytes: while it is full, locks are not acquired, renewed or released.")
	}
	return c
}

// maxTTL leaves a tenth of the maximum age of a record; zero is no maximum.
func maxTTL(age time.Duration) time.Duration {
	if age == 0 {
		return backend.MaxTTL
	}
	return min(age-age/10, backend.MaxTTL)
}

// fencing depends on the bucket: a revision rises over the loss of all data only if the bucket begins with the time of its
// creation. Servers before 2.10 begin with 1, whatever the client asks for.
func (b *Backend) fencing() backend.Fencing {
	switch {
	case b.config.Storage == jetstream.MemoryStorage, b.config.FirstSeq <= 1:
		return backend.FencingMemory
	case b.config.Replicas >= 3:
		return backend.FencingFailover
	}
	return backend.FencingRestart
}

// Ping asks the servers for the state of the bucket.
func (b *Backend) Ping(ctx context.Context) error {
	_, err := b.info(ctx)
	return err
}

// Close ends the requests in flight, and closes a connection that Open has made.
func (b *Backend) Close(ctx context.Context) error {
	b.stop()
	_ = b.elections.Unsubscribe() // it fails if the connection is closed
	b.endWatches()
	if b.ownsConn {
		b.conn.Close()
	}
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stop ends requests and watchConnection.
func (b *Backend) stop() {
	b.end()
	b.conn.RemoveStatusListener(b.states)
}
