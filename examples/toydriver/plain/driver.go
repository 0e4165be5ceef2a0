// Package plain is a complete driver in about a hundred lines, as an example of
// a driver for a service of your own. The service is the small HTTP server in server.go.
//
// The driver implements only what package backend requires. Therefore waiters poll, and
// operations such as Break and Inspect return errors.ErrUnsupported.
package plain

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/interlock-go/lock/backend"
)

// After an import of this package, lock.Open accepts toy://host:port.
func init() {
	backend.Register("toy", func(_ context.Context, u *backend.URL) (backend.Backend, error) {
		if err := u.Params.Err(); err != nil {
			return nil, err
		}
		if len(u.Hosts) != 1 {
			return nil, backend.Invalid("URL host", fmt.Sprint(u.Hosts), "one host:port")
		}
		return New("http://" + u.Hosts[0]), nil
	})
}

// Backend is a client of the service.
type Backend struct {
	base string
	http *http.Client
}

// New returns a client of the service at a base URL.
func New(base string) *Backend {
	// A transport of its own: Close must not close the connections of others.
	return &Backend{base, &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}}
}

// Capabilities declares no more than the service does. The suite takes us at our
// word.
func (b *Backend) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Name:    "toy",
		Scope:   backend.ScopeNetwork,
		Loss:    backend.LossTTL,
		Order:   backend.Unordered,
		Wake:    backend.WakePoll,
		Fencing: backend.FencingMemory,
		MinTTL:  10 * time.Millisecond,
		MaxTTL:  backend.MaxTTL,
	}
}

// TryAcquire makes one attempt. The server grants an owner that holds already once
// more with the same token, so a request that is sent twice is granted once.
func (b *Backend) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	sent := time.Now()
	a, err := b.post(ctx, "acquire", req, req.TTL)
	switch {
	case err != nil:
		return nil, err
	case !a.OK:
		return nil, &backend.LockedError{Holder: backend.Holder{
			Contender: backend.Contender{Owner: a.Owner, Metadata: a.Metadata}, Token: a.Token, Left: a.Left,
		}}
	}
	return &grant{b, req, a.Token, sent.Add(req.TTL)}, nil
}

// Abandon releases what may have been granted, and the server remembers the owner
// for a while, so that a request which is still on its way comes too late.
func (b *Backend) Abandon(ctx context.Context, req backend.Request) error {
	_, err := b.post(ctx, "abandon", req, req.TTL)
	return err
}

// Close closes the connections. There is nothing else: no session, no goroutine.
func (b *Backend) Close(context.Context) error {
	b.http.CloseIdleConnections()
	return nil
}

type grant struct {
	b     *Backend
	req   backend.Request
	token uint64
	until time.Time
}

func (g *grant) Token() uint64 { return g.token }

// Until counts from before the last request that the server answered. It needs no mutex: the
// core calls the methods of a grant of this driver one at a time.
func (g *grant) Until() time.Time { return g.until }

func (g *grant) Renew(ctx context.Context, ttl time.Duration) error {
	sent := time.Now()
	err := g.own(g.b.post(ctx, "renew", g.req, ttl))
	if err == nil {
		g.until = sent.Add(ttl)
	}
	return err
}

func (g *grant) Release(ctx context.Context) error {
	return g.own(g.b.post(ctx, "release", g.req, 0))
}

// own returns ErrLost if the server says that this attempt does not hold the key.
func (g *grant) own(a answer, err error) error {
	if err == nil && !a.OK {
		return backend.ErrLost
	}
	return err
}

// post makes a request. An error after the request may have been sent is not marked, so its
// outcome counts as unknown.
func (b *Backend) post(ctx context.Context, op string, req backend.Request, ttl time.Duration) (a answer, err error) {
	if err := ctx.Err(); err != nil {
		return a, backend.NotExecuted(err)
	}
	// The query escapes a key of any bytes; a path would be cleaned on the way.
	q := url.Values{"key": {req.Key}, "owner": {req.Owner}, "ttl": {ttl.String()}, "metadata": {req.Metadata}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.base+"/"+op+"?"+q.Encode(), nil)
	if err != nil {
		return a, backend.NotExecuted(err)
	}
	resp, err := b.http.Do(r)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return a, fmt.Errorf("toy server: %s", resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return a, fmt.Errorf("toy server: %w", err)
	}
	return a, nil
}
