package provision

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// zone is where the names of proxies are.
const zone = ".lock.test."

// names answers for the proxies that have names.
var names = struct {
	sync.Mutex
	proxies map[string]*Proxy
}{proxies: map[string]*Proxy{}}

// Name returns the host:port of the proxy by a name, which follows [Proxy.Move] and is known where [ServeNames] was
// called.
func (p *Proxy) Name(t testing.TB) string {
	t.Helper()
	_, port, _ := net.SplitHostPort(p.Addr())
	name := "p" + port + zone
	names.Lock()
	names.proxies[name] = p
	names.Unlock()
	t.Cleanup(func() {
		names.Lock()
		defer names.Unlock()
		delete(names.proxies, name)
	})
	return net.JoinHostPort(strings.TrimSuffix(name, "."), port)
}

// Move gives the proxy another loopback address, with the same port, which its name leads to at once. The old one
// refuses connections, and those that there were are reset.
func (p *Proxy) Move() error {
	p.Cut()
	p.host.Store(map[string]string{"127.0.0.1": "127.0.0.2", "127.0.0.2": "127.0.0.1"}[p.host.Load().(string)])
	return p.Heal()
}

// ServeNames makes the names of proxies, and no others, known to this process, until it ends: its default resolver
// asks a name server of its own on loopback. Call it before anything resolves a name.
func ServeNames() error {
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	go func() {
		for b := make([]byte, 1500); ; {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			if answer := answerName(b[:n]); answer != nil {
				_, _ = c.WriteToUDPAddrPort(answer, from)
			}
		}
	}()
	server := c.LocalAddr().String()
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", server)
	}}
	return nil
}

// answerName knows the IPv4 addresses of proxies; nothing else exists.
func answerName(query []byte) []byte {
	var q dnsmessage.Message
	if q.Unpack(query) != nil || len(q.Questions) != 1 {
		return nil
	}
	of := q.Questions[0]
	names.Lock()
	p := names.proxies[strings.ToLower(of.Name.String())]
	names.Unlock()
	a := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: q.ID, Response: true, Authoritative: true, RecursionDesired: q.RecursionDesired},
		Questions: q.Questions,
	}
	switch {
	case p == nil:
		a.RCode = dnsmessage.RCodeNameError
	case of.Type == dnsmessage.TypeA:
		ip := net.ParseIP(p.host.Load().(string)).To4()
		a.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: of.Name, Type: of.Type, Class: of.Class},
			Body:   &dnsmessage.AResource{A: [4]byte(ip)},
		}}
	}
	packed, err := a.Pack()
	if err != nil {
		return nil
	}
	return packed
}
