package provision

import (
	"net"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/interlock-go/lock/conformance/conformancelink"
)

// Proxy is a disturbed link to a server of a test, on a port that stays reserved while the link is cut.
type Proxy struct {
	*conformancelink.Link
	port int
	host atomic.Value // the loopback address that it listens at, a string
}

// NewProxy starts a proxy to upstream, a host:port. It ends with the test.
func NewProxy(t testing.TB, upstream string) *Proxy {
	t.Helper()
	port, err := reservePort()
	if err != nil {
		t.Fatalf("provision: proxy: %v", err)
	}
	p := &Proxy{port: port.port}
	p.host.Store("127.0.0.1")
	p.Link, err = conformancelink.NewOn(upstream, func() (net.Listener, error) {
		return net.Listen("tcp", net.JoinHostPort(p.host.Load().(string), strconv.Itoa(p.port)))
	})
	if err != nil {
		port.release()
		t.Fatalf("provision: proxy: %v", err)
	}
	t.Cleanup(func() {
		p.Close()
		port.release()
	})
	return p
}

// Heal ends every fault, as [conformancelink.Link.Heal] does, and returns an error if the proxy cannot listen again.
func (p *Proxy) Heal() error {
	p.Link.Heal()
	return p.Err()
}
