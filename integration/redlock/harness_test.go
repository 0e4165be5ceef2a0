package redlock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/redislock"
)

const size = 5

// durable makes a server keep its locks over a restart. It writes before it answers and
// does not wait for the disk: what was written survives the death of the process.
var durable = []string{"--appendonly", "yes", "--appendfsync", "no"}

// set is five masters, each with a client to look at it.
type set struct {
	t       testing.TB
	servers []*provision.Server
	admins  []*goredis.Client
}

func newSet(t testing.TB, args ...string) *set {
	s := &set{t: t}
	for range size {
		server := provision.NewRedis(t, provision.AnyRedis, provision.Options{Args: args})
		admin := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
		t.Cleanup(func() { _ = admin.Close() })
		s.servers, s.admins = append(s.servers, server), append(s.admins, admin)
	}
	return s
}

func (s *set) url() string { return urlOf(s.servers) }

func urlOf[T interface{ Addr() string }](nodes []T) string {
	addrs := make([]string, len(nodes))
	for i, n := range nodes {
		addrs[i] = n.Addr()
	}
	return "redlock://" + strings.Join(addrs, ",") + "/0"
}

// each does something at all nodes at once.
func (s *set) each(do func(i int) error) error {
	errs := make([]error, size)
	var all sync.WaitGroup
	for i := range size {
		all.Go(func() { errs[i] = do(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// links are the proxies of one client, one before each node.
type links struct {
	t       testing.TB
	proxies []*provision.Proxy
}

func (s *set) links() links {
	l := links{t: s.t}
	for _, server := range s.servers {
		l.proxies = append(l.proxies, provision.NewProxy(s.t, server.Addr()))
	}
	return l
}

func (l links) all(do func(*provision.Proxy)) {
	for _, p := range l.proxies {
		do(p)
	}
}

func (l links) Cut()                  { l.all((*provision.Proxy).Cut) }
func (l links) Blackhole()            { l.all((*provision.Proxy).Blackhole) }
func (l links) BlackholeReplies()     { l.all((*provision.Proxy).BlackholeReplies) }
func (l links) Delay(d time.Duration) { l.all(func(p *provision.Proxy) { p.Delay(d) }) }
func (l links) CutAfterReplies(n int) { l.all(func(p *provision.Proxy) { p.CutAfterReplies(n) }) }
func (l links) Heal() {
	l.all(func(p *provision.Proxy) {
		if err := p.Heal(); err != nil {
			l.t.Errorf("heal a proxy: %v", err)
		}
	})
}

// harness is that of a set whose nodes keep everything over a restart. The service is
// all of its nodes; what happens when some of them fail, the other tests show.
func harness(t *testing.T, s *set) conformance.Harness {
	// a machine that stands still for a moment is no outage
	params := map[string]string{"durable": "true", "restart_delay": "2h", "node_timeout": "1s"}
	with := func(more ...string) map[string]string {
		m := map[string]string{}
		for k, v := range params {
			m[k] = v
		}
		for i := 0; i+1 < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	url := suite.WithParams(s.url(), params)
	grants := &grantCounter{t: t, addr: s.servers[0].Addr()}
	return conformance.Harness{
		Name: "redlock, five nodes",
		Open: func(ctx context.Context) (backend.Backend, error) { return suite.Open(ctx, url) },
		OpenPrefix: func(ctx context.Context, prefix string) (backend.Backend, error) {
			return suite.Open(ctx, suite.WithParams(s.url(), with("prefix", prefix)))
		},
		OpenFaulty: func(ctx context.Context) (backend.Backend, conformance.Link, error) {
			l := s.links()
			// short timeouts, so that a request into a black hole frees its connection soon
			b, err := suite.Open(ctx, suite.WithParams(urlOf(l.proxies), with("dial_timeout", "1s", "read_timeout", "1s")))
			return b, l, err
		},
		Worker:        conformance.Self(url),
		ClockWorker:   provision.ClockWorker(t, conformance.Self(url)),
		OwnGoroutines: suite.OwnGoroutines,
		StopServer:    func(context.Context) error { return s.each(func(i int) error { return s.servers[i].Pause() }) },
		ResumeServer:  func(context.Context) error { return s.each(func(i int) error { return s.servers[i].Resume() }) },
		RestartServer: func(ctx context.Context) error {
			if err := s.each(func(i int) error { return s.servers[i].Kill() }); err != nil {
				return err
			}
			return s.each(func(i int) error { return s.servers[i].Restart(ctx) })
		},
		RestartKeepsLocks: true,
		ServerCommands:    s.commands,
		Wakes:             func(ctx context.Context) (int64, error) { return grants.count(ctx, s.admins[0]) },
		Leftovers:         s.leftovers,
		ForeignHolder: func(ctx context.Context, name string, ttl time.Duration) (func(context.Context) error, error) {
			key := redislock.Key(redislock.DefaultPrefix, name)
			err := s.each(func(i int) error {
				ok, err := s.admins[i].SetNX(ctx, key, "another client", ttl).Result()
				if err == nil && !ok {
					err = errors.New("it is held")
				}
				return err
			})
			return func(ctx context.Context) error { return s.destroy(ctx, name) }, err
		},
		DestroyState: s.destroy,
		KeepsFence:   true,
		KeyOf:        func(name string) string { return redislock.Key(redislock.DefaultPrefix, name) },
		GuardedWrite: func(ctx context.Context, name string, token uint64) error {
			return fenced.Run(ctx, s.admins[0], []string{"guarded:" + name}, strconv.FormatUint(token, 10)).Err()
		},
	}
}

func (s *set) destroy(ctx context.Context, name string) error {
	return s.each(func(i int) error {
		return s.admins[i].Del(ctx, redislock.Key(redislock.DefaultPrefix, name)).Err()
	})
}

// commands counts the scripts and subscriptions that clients had executed, at a node on average.
func (s *set) commands(ctx context.Context) (int64, error) {
	counts := make([]int64, size)
	err := s.each(func(i int) (err error) {
		counts[i], err = commandsAt(ctx, s.admins[i])
		return err
	})
	var sum int64
	for _, n := range counts {
		sum += n
	}
	return sum / size, err
}

func commandsAt(ctx context.Context, admin *goredis.Client) (int64, error) {
	stats, err := admin.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	var n int64
	for line := range strings.Lines(stats) {
		name, fields, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch strings.TrimPrefix(name, "cmdstat_") {
		case "evalsha", "eval", "subscribe":
			calls, _, _ := strings.Cut(strings.TrimPrefix(fields, "calls="), ",")
			c, err := strconv.ParseInt(calls, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("commandstats: %q", line)
			}
			n += c
		}
	}
	return n, nil
}

// leftovers are all keys of a name at any node but the fence counter, and tombstones,
// which expire by themselves.
func (s *set) leftovers(ctx context.Context, name string) ([]string, error) {
	key := redislock.Key(redislock.DefaultPrefix, name)
	var left []string
	for _, admin := range s.admins {
		for _, k := range []string{key, "{" + key + "}:q"} {
			n, err := admin.Exists(ctx, k).Result()
			if err != nil {
				return nil, err
			}
			if n > 0 {
				left = append(left, admin.Options().Addr+" "+k)
			}
		}
	}
	return left, nil
}

// grantCounter counts the grants that scripts push to waiters at one node, by
// listening to MONITOR from its first use on.
type grantCounter struct {
	t    *testing.T
	addr string

	once  sync.Once
	err   error
	lines *bufio.Scanner
	n     int64
}

func (g *grantCounter) start() error {
	c, err := net.Dial("tcp", g.addr)
	if err != nil {
		return err
	}
	g.t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Write([]byte("MONITOR\r\n")); err != nil {
		return err
	}
	g.lines = bufio.NewScanner(c)
	if !g.lines.Scan() || g.lines.Text() != "+OK" {
		return fmt.Errorf("MONITOR: %q, %w", g.lines.Text(), g.lines.Err())
	}
	return nil
}

func (g *grantCounter) count(ctx context.Context, admin *goredis.Client) (int64, error) {
	g.once.Do(func() { g.err = g.start() })
	if g.err != nil {
		return 0, g.err
	}
	// The monitor's stream is in order: what was before the marker has been counted.
	marker := fmt.Sprintf("marker-%d", time.Now().UnixNano())
	if err := admin.Echo(ctx, marker).Err(); err != nil {
		return 0, err
	}
	for g.lines.Scan() {
		line := g.lines.Text()
		if strings.Contains(line, marker) {
			return g.n, nil
		}
		if strings.Contains(line, `PUBLISH" "`) && strings.Contains(line, `" "g `) {
			g.n++
		}
	}
	return 0, fmt.Errorf("MONITOR: the stream ended: %w", g.lines.Err())
}

// fenced writes only with a token that is not lower than the highest it has seen.
var fenced = goredis.NewScript(`
local seen = tonumber(redis.call('HGET', KEYS[1], 'fence') or '0')
if tonumber(ARGV[1]) < seen then return redis.error_reply('stale fencing token') end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'value', ARGV[1])
return 1`)
