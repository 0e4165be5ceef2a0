package measure

import (
	"errors"
	"fmt"
	neturl "net/url"
	"slices"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance/conformancelink"
)

// ports are the default ports of the services.
var ports = map[string]string{
	"redis": "6379", "redlock": "6379", "etcd": "2379", "zk": "2181", "mysql": "3306", "postgres": "5432", "postgresql": "5432",
	"memcached": "11211", "nats": "4222",
}

// Delayed starts a proxy for each host of url, which delays all data each way, and
// returns url with the proxies as hosts. With a delay round trips can be counted and a
// distant service simulated. Delayed works for services whose clients connect to the
// hosts of the URL only. closeAll stops the proxies.
func Delayed(url string, delay time.Duration) (delayed string, closeAll func(), err error) {
	if delay < time.Millisecond || delay%time.Millisecond != 0 {
		return "", nil, fmt.Errorf("delay %v: want whole milliseconds, 1ms or more", delay)
	}
	delayed, links, closeAll, err := linked(url)
	if err != nil {
		return "", nil, fmt.Errorf("delay: %w", err)
	}
	each(links, func(l *conformancelink.Link) { l.Delay(delay) })
	return delayed, closeAll, nil
}

func each(links []*conformancelink.Link, f func(*conformancelink.Link)) {
	for _, l := range links {
		f(l)
	}
}

// linked starts a link for each host of url, and returns url with the links as hosts.
func linked(url string) (through string, links []*conformancelink.Link, closeAll func(), err error) {
	scheme, _, _ := strings.Cut(url, ":")
	if scheme == "s3" {
		return linkedEndpoint(url)
	}
	port, ok := ports[scheme]
	if !ok {
		return "", nil, nil, fmt.Errorf("proxy with scheme %q: want one of redis, redlock, etcd, zk, mysql, postgres, memcached, nats, s3, without TLS", scheme)
	}
	start := strings.Index(url, "://")
	if start < 0 {
		return "", nil, nil, fmt.Errorf("proxy with scheme %q: want %s://host", scheme, scheme)
	}
	start += len("://")
	end := len(url)
	if i := strings.IndexAny(url[start:], "/?#"); i >= 0 {
		end = start + i
	}
	if i := strings.LastIndexByte(url[start:end], '@'); i >= 0 {
		start += i + 1
	}
	closeAll = func() { each(links, (*conformancelink.Link).Close) }
	var hosts, direct []string
	for h := range strings.SplitSeq(url[start:end], ",") {
		h = backend.HostPort(h, port)
		l, err := conformancelink.New(h)
		if err != nil {
			closeAll()
			return "", nil, nil, fmt.Errorf("proxy for %s: %w", h, err)
		}
		links, hosts, direct = append(links, l), append(hosts, l.Addr()), append(direct, h)
	}
	through = url[:start] + strings.Join(hosts, ",") + url[end:]
	if scheme == "redlock" { // the nodes know their set by the addresses
		slices.Sort(direct)
		through = withParameter(through, "set", neturl.QueryEscape(strings.Join(direct, ",")))
	}
	return through, links, closeAll, nil
}

// linkedEndpoint is linked for a URL whose parameter endpoint has the host.
func linkedEndpoint(url string) (through string, links []*conformancelink.Link, closeAll func(), err error) {
	u, err := neturl.Parse(url)
	if err != nil {
		return "", nil, nil, errors.New("proxy for an invalid URL") // the error of net/url has the URL
	}
	params := u.Query()
	endpoint, err := neturl.Parse(params.Get("endpoint"))
	if err != nil || endpoint.Scheme != "http" || endpoint.Port() == "" {
		return "", nil, nil, fmt.Errorf("proxy with scheme %q: parameter endpoint: want http://host:port", u.Scheme)
	}
	l, err := conformancelink.New(endpoint.Host)
	if err != nil {
		return "", nil, nil, fmt.Errorf("proxy for %s: %w", endpoint.Host, err)
	}
	params.Set("endpoint", "http://"+l.Addr())
	u.RawQuery = params.Encode()
	return u.String(), []*conformancelink.Link{l}, l.Close, nil
}
