package s3lock

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/record"
)

// Backend is the S3 driver. Make one with New or lock.Open.
type Backend struct {
	*record.Locks
	*record.Queue
	client    *s3.Client
	bucket    string
	http      *http.Client // of Open, or with the transport of the SDK; nil: the application's own
	opt       options
	exchanges record.Exchanges
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

// New returns a backend that uses client and never closes it. It makes two or three requests to
// verify that the bucket exists and that the store has conditional writes. The requests of the driver
// are never repeated by the client, whatever its Retryer is.
func New(client *s3.Client, bucket string, opts ...Option) (*Backend, error) {
	if client == nil {
		return nil, backend.Invalid("client", "nil", "a *s3.Client")
	}
	if bucket == "" {
		return nil, backend.Invalid("bucket", bucket, "the name or ARN of a bucket or access point")
	}
	o := defaults()
	for _, opt := range opts {
		opt(&o)
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	b, err := open(context.Background(), client, httpClient(client), bucket, o)
	if err != nil {
		return nil, fmt.Errorf("s3 bucket %q: %w", bucket, err)
	}
	return b, nil
}

// httpClient returns a client like that of the SDK, whose idle connections cannot be closed, or nil.
func httpClient(client *s3.Client) *http.Client {
	c, ok := client.Options().HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		return nil
	}
	return &http.Client{Transport: c.GetTransport(), Timeout: c.GetTimeout(), CheckRedirect: noRedirect}
}

func newBackend(client *s3.Client, h *http.Client, bucket string, o options) *Backend {
	b := &Backend{client: client, http: h, bucket: bucket, opt: o}
	b.Locks = record.New(store{b}, record.Options{})
	b.Queue = &record.Queue{Locks: b.Locks, Poll: o.poll, FastPoll: min(fastPoll, o.poll)}
	return b
}

func open(ctx context.Context, client *s3.Client, h *http.Client, bucket string, o options) (*Backend, error) {
	b := newBackend(client, h, bucket, o)
	if err := b.probe(ctx); err != nil {
		if h != nil {
			h.CloseIdleConnections()
		}
		return nil, err
	}
	return b, nil
}

// Acquire implements backend.Waiter. It goes on with pauses while the service has too many requests, for one TTL.
func (b *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	unknown := false // a request may have been executed
	for begin, pause := time.Now(), fastPoll; ; pause = min(2*pause, max(b.opt.poll, fastPoll)) {
		g, err := b.Queue.Acquire(ctx, req)
		if err == nil {
			return g, nil
		}
		unknown = unknown || backend.OutcomeUnknown(err)
		if throttled(err) && time.Since(begin) < req.TTL {
			select {
			case <-time.After(pause/2 + rand.N(pause)):
				continue
			case <-ctx.Done():
				err = backend.NotExecuted(fmt.Errorf("%w: %w", err, ctx.Err()))
			}
		}
		if unknown {
			err = backend.Uncertain(err)
		}
		return nil, err
	}
}

// Capabilities returns what the backend guarantees.
func (b *Backend) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Name:     "s3",
		Scope:    backend.ScopeNetwork,
		Loss:     backend.LossTTL,
		Order:    backend.Unordered,
		Wake:     backend.WakePoll,
		Fencing:  backend.FencingFailover,
		MinTTL:   time.Second,
		MaxTTL:   backend.MaxTTL,
		Lateness: record.Lateness,
		Caveats: []string{
			"Requests cost money: a holder writes about 3.3 times in a TTL, and the first waiter of each process reads at every poll interval. docs/backends/s3.md has the sums.",
			"Exclusion needs a store whose conditional writes are atomic. Opening refuses one that ignores the conditions, and cannot find one that checks them and then writes.",
			"Do not delete the objects of locks, not even by a lifecycle rule: that frees a lock, and the tokens begin with the clock of a client again.",
			record.CaveatDeadHolder, record.CaveatClockRates, backend.CaveatSnapshot,
		},
	}
}

// fastPoll is the interval of a waiter after a change of the holder. The next ones double up to the
// poll interval.
const fastPoll = 100 * time.Millisecond

// Ping reads one object.
func (b *Backend) Ping(ctx context.Context) error {
	_, _, err := b.get(ctx, b.opt.prefix+"/"+probeName)
	return err
}

// Close waits for the requests in flight, which their timeout bounds. It closes the connections
// of a client that Open has made.
func (b *Backend) Close(ctx context.Context) error {
	err := b.exchanges.Close(ctx)
	if b.http != nil {
		b.http.CloseIdleConnections()
	}
	return err
}

// sdkLogger passes on what the SDK logs by itself.
type sdkLogger struct{}

func (sdkLogger) Logf(_ logging.Classification, format string, args ...any) {
	slog.Debug("s3: " + fmt.Sprintf(format, args...))
}
