package s3_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/interlock-go/lock/integration/provision"
)

// proxy passes requests on to a server and counts them.
type proxy struct {
	*httptest.Server
	requests atomic.Int64
	strip    string // a header that requests lose
}

// newProxy starts a proxy. The server sees the Host that the client has signed. The conditions of a write are signed
// too: a proxy without the secret cannot remove them, so this one signs again.
func newProxy(t *testing.T, to *provision.Server, strip string) *proxy {
	p := &proxy{strip: strip}
	transport := &http.Transport{DisableKeepAlives: true} // no goroutines that look like those of a client
	p.Server = httptest.NewServer(&httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			p.requests.Add(1)
			r.SetURL(&url.URL{Scheme: "http", Host: to.Addr()})
			r.Out.Host = r.In.Host
			if p.strip != "" {
				r.Out.Header.Del(p.strip)
				if err := provision.S3Sign(r.Out); err != nil {
					t.Error(err)
				}
			}
		},
	})
	t.Cleanup(func() {
		p.Close()
		transport.CloseIdleConnections()
	})
	return p
}

// through returns a URL whose endpoint is another one.
func through(t *testing.T, server, endpoint string) string {
	return with(t, server, "endpoint", endpoint)
}

// with returns a URL with another value of a parameter.
func with(t *testing.T, server, param, value string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set(param, value)
	u.RawQuery = q.Encode()
	return u.String()
}
