package s3lock

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/interlock-go/lock/backend"
)

// call makes one request with the client.
type call func(ctx context.Context, opt func(*s3.Options)) error

// do makes a request and classifies its error. It makes a request again if the service refused it
// because the clock of this machine is wrong: the client then signs with that of the service.
func (b *Backend) do(ctx context.Context, request call) error {
	if err := b.exchanges.Begin(ctx); err != nil {
		return err
	}
	defer b.exchanges.End()
	err := b.once(ctx, request)
	if code(err) == "RequestTimeTooSkewed" {
		err = b.once(ctx, request)
	}
	return err
}

func (b *Backend) once(ctx context.Context, request call) error {
	limited, cancel := context.WithTimeout(ctx, b.opt.timeout)
	defer cancel()
	p := progress{http: b.http}
	begin := time.Now()
	err := request(httptrace.WithClientTrace(limited, p.trace()), p.options)
	if err == nil {
		return nil
	}
	s := status(err)
	if s == 0 && limited.Err() != nil && p.reused.Load() && time.Since(begin) >= leastSilence {
		b.dropIdle()
	}
	if s == 0 && limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("s3: no answer in %v, see the timeout of the driver", b.opt.timeout)
	} else {
		err = fmt.Errorf("s3: %w", err)
	}
	if end := ctx.Err(); end != nil && !errors.Is(err, end) {
		err = fmt.Errorf("%w: %w", err, end)
	}
	if refused(s) || p.unsent() {
		return backend.NotExecuted(err)
	}
	return err
}

// leastSilence is the time without a reply after which the connections of a client may be dead.
const leastSilence = 100 * time.Millisecond

// dropIdle closes the idle connections after a request over a used one had no reply: each of them may be silent too,
// and the next requests would wait for one after the other.
func (b *Backend) dropIdle() {
	if c, ok := b.client.Options().HTTPClient.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections() // of an application
	}
	if b.http != nil {
		b.http.CloseIdleConnections()
	}
}

// throttled reports whether the service has refused a request because it has too many.
func throttled(err error) bool {
	s := status(err)
	return s == http.StatusServiceUnavailable || s == http.StatusTooManyRequests || code(err) == "SlowDown"
}

// progress is how far a request came. The client's own errors do not distinguish a request that
// was not sent from one that has no reply.
type progress struct {
	signed, waits, connected, reused atomic.Bool
	http                             *http.Client
}

// unsent reports whether nothing was sent. If the application's client has another transport
// than that of net/http, that is known only of a request that did not reach it.
func (p *progress) unsent() bool {
	return !p.signed.Load() || p.waits.Load() && !p.connected.Load()
}

func (p *progress) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { p.waits.Store(true) },
		GotConn: func(c httptrace.GotConnInfo) {
			p.connected.Store(true)
			p.reused.Store(c.Reused)
		},
	}
}

// options are those of each request, whatever the client has: a request that the client repeats is
// a late one, and other services than that of AWS do not know the checksums.
func (p *progress) options(o *s3.Options) {
	if p.http != nil {
		o.HTTPClient = p.http
	}
	o.Retryer = aws.NopRetryer{}
	o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	o.APIOptions = append(o.APIOptions, func(s *middleware.Stack) error {
		return s.Deserialize.Add(middleware.DeserializeMiddlewareFunc("interlock", func(
			ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler,
		) (middleware.DeserializeOutput, middleware.Metadata, error) {
			p.signed.Store(true)
			return next.HandleDeserialize(ctx, in)
		}), middleware.After)
	})
}

// status returns the HTTP status of a reply that is an error, or 0 without a reply.
func status(err error) int {
	var reply *smithyhttp.ResponseError
	if errors.As(err, &reply) && reply.Response != nil && reply.Response.Response != nil {
		return reply.HTTPStatusCode()
	}
	return 0
}

// refused reports whether a request with that reply was certainly not executed.
func refused(status int) bool {
	return status >= 300 && status < 500 && status != http.StatusRequestTimeout || status == http.StatusNotImplemented
}

// code returns the code of an error of the service, such as "NoSuchBucket".
func code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}
