package measure

import (
	"fmt"
	"net"
	neturl "net/url"
	"slices"
	"strings"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// ports are the default ports of the services.
var ports = map[string]string{
	"redis": "6379", "redlock": "6379", "etcd": "2379", "zk": "2181", "mysql": "3306", "postgres": "5432", "postgresql": "5432",
}

// Delayed starts a proxy for each host of url, which delays all data each way, and
// returns url with the proxies as hosts. With a delay round trips can be counted and a
// distant service simulated. Delayed works for services whose clients connect to the
// hosts of the URL only. closeAll stops the proxies.
func Delayed(url string, delay time.Duration) (delayed string, closeAll func(), err error) {
	if delay < time.Millisecond || delay%time.Millisecond != 0 {
		return "", nil, fmt.Errorf("delay %v: want whole milliseconds, 1ms or more", delay)
	}
	scheme, _, _ := strings.Cut(url, ":")
	port, ok := ports[scheme]
	if !ok {
		return "", nil, fmt.Errorf("delay with scheme %q: want one of redis, redlock, etcd, zk, mysql, postgres, without TLS", scheme)
	}
	start := strings.Index(url, "://")
	if start < 0 {
		return "", nil, fmt.Errorf("delay with scheme %q: want %s://host", scheme, scheme)
	}
	start += len("://")
	end := len(url)
	if i := strings.IndexAny(url[start:], "/?#"); i >= 0 {
		end = start + i
	}
	if i := strings.LastIndexByte(url[start:end], '@'); i >= 0 {
		start += i + 1
	}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	var proxies []*toxiproxy.Proxy
	closeAll = func() {
		for _, p := range proxies {
			p.Stop()
		}
	}
	var hosts, direct []string
	for _, h := range strings.Split(url[start:end], ",") {
		if _, _, err := net.SplitHostPort(h); err != nil {
			h = net.JoinHostPort(strings.Trim(h, "[]"), port)
		}
		p := toxiproxy.NewProxy(server, h, "127.0.0.1:0", h)
		if err := p.Start(); err != nil {
			closeAll()
			return "", nil, fmt.Errorf("delay: proxy for %s: %w", h, err)
		}
		proxies = append(proxies, p)
		for _, stream := range []string{"upstream", "downstream"} {
			toxic := fmt.Sprintf(`{"name":%q,"type":"latency","stream":%q,"attributes":{"latency":%d}}`, stream, stream, delay.Milliseconds())
			if _, err := p.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
				closeAll()
				return "", nil, fmt.Errorf("delay: proxy for %s: %w", h, err)
			}
		}
		hosts, direct = append(hosts, p.Listen), append(direct, h)
	}
	delayed = url[:start] + strings.Join(hosts, ",") + url[end:]
	if scheme == "redlock" && !strings.Contains(url[end:], "set=") { // the nodes know their set by the addresses
		separator := "?"
		if strings.Contains(url[end:], "?") {
			separator = "&"
		}
		slices.Sort(direct)
		delayed += separator + "set=" + neturl.QueryEscape(strings.Join(direct, ","))
	}
	return delayed, closeAll, nil
}
