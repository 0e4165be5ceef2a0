package redlock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/redistest"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/redislock/redlock"
)

const size = 5

// setName names the set: clients behind proxies reach the nodes by different addresses.
const setName = "test"

// durable makes a server keep its locks over a restart. It writes before it answers and
// does not wait for the disk: what was written survives the death of the process.
var durable = []string{"--appendonly", "yes", "--appendfsync", "no"}

// set is five masters, each with an admin client.
type set struct {
	t       testing.TB
	servers []*provision.Server
	admins  []*goredis.Client
}

func newSet(t testing.TB, args ...string) *set {
	s := &set{t: t}
	for range size {
		s.add(provision.Options{Args: args})
	}
	return s
}

// newSetWithClocks returns a set whose clocks the test can step.
func newSetWithClocks(t testing.TB, size int) (*set, []*provision.Clock) {
	s := &set{t: t}
	var clocks []*provision.Clock
	for range size {
		c := provision.NewClock(t, provision.AnyRedis)
		s.add(provision.Options{Clock: c})
		clocks = append(clocks, c)
	}
	return s, clocks
}

func (s *set) add(o provision.Options) {
	server := provision.NewRedis(s.t, provision.AnyRedis, o)
	admin := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	s.t.Cleanup(func() { _ = admin.Close() })
	s.servers, s.admins = append(s.servers, server), append(s.admins, admin)
}

func (s *set) url() string { return urlOf(s.servers) }

func urlOf[T interface{ Addr() string }](nodes []T) string {
	addrs := make([]string, len(nodes))
	for i, n := range nodes {
		addrs[i] = n.Addr()
	}
	return "redlock://" + strings.Join(addrs, ",") + "/0"
}

// each calls do for all nodes in parallel.
func (s *set) each(do func(i int) error) error {
	errs := make([]error, len(s.servers))
	var all sync.WaitGroup
	for i := range s.servers {
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
func (l links) SilenceOpen()          { l.all(func(p *provision.Proxy) { p.SilenceOpen() }) }
func (l links) SilenceAfterReplies(n int) {
	l.all(func(p *provision.Proxy) { p.SilenceAfterReplies(n) })
}
func (l links) Heal() {
	l.all(func(p *provision.Proxy) {
		if err := p.Heal(); err != nil {
			l.t.Errorf("heal a proxy: %v", err)
		}
	})
}

// harness is the harness of a set of durable nodes. Its faults affect all nodes; the other
// tests are about faults of some nodes.
func harness(t *testing.T, s *set) conformance.Harness {
	// a pause of the machine is no outage
	params := map[string]string{"durable": "true", "restart_delay": "2h", "node_timeout": "1s", "set": setName}
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
		// at each node; WakesPerRelease and HandOffCommands grow with the number of processes
		Budget:    conformance.Budget{IdleHolderCommands: 4, IdleWaiterCommands: 1.5, DeadProcess: backend.MaxProvisionalTTL},
		Leftovers: s.leftovers,
		ForeignHolder: func(ctx context.Context, name string, ttl time.Duration) (func(context.Context) error, error) {
			key := redlock.Key(redlock.DefaultPrefix, name)
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
		KeyOf:        func(name string) string { return redlock.Key(redlock.DefaultPrefix, name) },
		GuardedWrite: func(ctx context.Context, name string, token uint64) error {
			return redistest.GuardedWrite(ctx, s.admins[0], name, token)
		},
	}
}

func (s *set) destroy(ctx context.Context, name string) error {
	return s.each(func(i int) error {
		return s.admins[i].Del(ctx, redlock.Key(redlock.DefaultPrefix, name)).Err()
	})
}

// commands counts the scripts and subscriptions that clients had executed, at a node on average.
func (s *set) commands(ctx context.Context) (int64, error) {
	counts := make([]int64, size)
	err := s.each(func(i int) (err error) {
		counts[i], err = redistest.Commands(ctx, s.admins[i])
		return err
	})
	var sum int64
	for _, n := range counts {
		sum += n
	}
	return sum / size, err
}

// leftovers returns all keys of a name at all nodes, except for the fence counter and tombstones,
// which expire.
func (s *set) leftovers(ctx context.Context, name string) ([]string, error) {
	key := redlock.Key(redlock.DefaultPrefix, name)
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
