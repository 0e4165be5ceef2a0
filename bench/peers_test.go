package bench

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/cmd/lockbench/measure"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/provision"

	_ "github.com/interlock-go/lock/etcdlock"
	_ "github.com/interlock-go/lock/memcachelock"
	_ "github.com/interlock-go/lock/mysqllock"
	_ "github.com/interlock-go/lock/natslock"
	_ "github.com/interlock-go/lock/pglock"
	_ "github.com/interlock-go/lock/redislock"
	_ "github.com/interlock-go/lock/redislock/redlock"
	_ "github.com/interlock-go/lock/s3lock"
	_ "github.com/interlock-go/lock/zklock"
)

var (
	documents = flag.String("documents", "", "write the pages of the benchmarks Peers, Shares and Growth that ran into this folder; services without a run of Peers keep their sections")
	rounds    = flag.Int("rounds", 4, "rounds of BenchmarkPeers")
	each      = flag.Duration("each", 1500*time.Millisecond, "length of each measurement of BenchmarkPeers")
)

// What the benchmarks measured.
var (
	comparisons []Comparison
	shares      []Shares
	costs       []Costs
)

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() { // only a smoke test
		*rounds, *each = 1, 200*time.Millisecond
	}
	conformance.WorkerMain() // the processes with dead waiters
	code := provision.Run(m)
	if *documents != "" { // also if a service failed: the others may have taken an hour
		if err := writeDocuments(*documents); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func writeDocuments(folder string) error {
	var names []string
	for _, s := range services {
		names = append(names, s.name)
	}
	if len(comparisons)+len(shares)+len(costs) == 0 {
		return fmt.Errorf("nothing was measured: want a service of %q", names)
	}
	for _, page := range []struct {
		file      string
		measured  int
		byService bool
		write     func(io.Writer) error
	}{
		{"performance.md", len(comparisons), true, func(w io.Writer) error { return Document(w, comparisons) }},
		{"performance-shares.md", len(shares), false, func(w io.Writer) error { return SharesDocument(w, shares) }},
		{"performance-growth.md", len(costs), false, func(w io.Writer) error { return GrowthDocument(w, costs) }},
	} {
		if page.measured == 0 {
			continue
		}
		var b bytes.Buffer
		if err := page.write(&b); err != nil {
			return err
		}
		file, text := filepath.Join(folder, page.file), b.String()
		if page.byService {
			old, err := os.ReadFile(file)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			text = merge(string(old), text, names)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// service is a service and the peers on it. Its URL contains the address once, so that the address of a proxy can replace
// it.
type service struct {
	name  string
	start func(b *testing.B) servers
	peers func(url string) []measure.Target
}

// servers are those of a service.
type servers struct {
	url string
	all []*provision.Server
}

func one(s *provision.Server) servers { return servers{s.URL(), []*provision.Server{s}} }

// processor returns the processor time that the servers have used.
func (s servers) processor(ctx context.Context) (sum time.Duration, err error) {
	for _, one := range s.all {
		d, err := one.Processor(ctx)
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

// noPeers is for services for which no other lock in Go is known.
func noPeers(string) []measure.Target { return nil }

// manyConnections is for the clients of idle processes.
var manyConnections = provision.Options{Args: []string{"--max-connections=4000"}}

var services = []service{
	{"Redis", func(b *testing.B) servers { return one(provision.NewRedis(b, provision.AnyRedis, provision.Options{})) },
		func(url string) []measure.Target { return redisPeers(addrOf(url)) }},
	{"Redlock, five nodes", func(b *testing.B) servers {
		var nodes servers
		var addrs []string
		for range 5 {
			s := provision.NewRedis(b, provision.AnyRedis, provision.Options{})
			nodes.all, addrs = append(nodes.all, s), append(addrs, s.Addr())
		}
		nodes.url = "redlock://" + strings.Join(addrs, ",") + "/0"
		return nodes
	}, func(url string) []measure.Target {
		return []measure.Target{redsyncOn("redsync, five nodes", strings.Split(addrOf(url), ","))}
	}},
	{"etcd", func(b *testing.B) servers { return one(provision.NewEtcd(b, provision.AnyEtcd, provision.Options{})) },
		func(url string) []measure.Target { return etcdPeers(addrOf(url)) }},
	{"ZooKeeper", func(b *testing.B) servers { return one(provision.NewZooKeeper(b, provision.AnyZooKeeper)) },
		func(url string) []measure.Target { return zooKeeperPeers(addrOf(url)) }},
	{"PostgreSQL", func(b *testing.B) servers {
		return one(provision.NewPostgres(b, provision.Postgres15, "max_connections=2000"))
	}, postgresPeers},
	{"MySQL", func(b *testing.B) servers { return one(provision.NewMySQL(b, provision.MySQL9, manyConnections)) }, mysqlPeers},
	{"MariaDB", func(b *testing.B) servers { return one(provision.NewMySQL(b, provision.MariaDB10, manyConnections)) }, mysqlPeers},
	{"Memcached", func(b *testing.B) servers { return one(provision.NewMemcached(b, provision.Options{})) }, memcachedPeers},
	{"NATS", func(b *testing.B) servers { return one(provision.NewNATS(b, provision.NATS2, provision.Options{})) }, natsPeers},
	{"S3 (Versity Gateway)", func(b *testing.B) servers { return one(provision.NewS3(b, provision.VersityGW, provision.Options{})) }, noPeers},
}

// redisCalls has the commands that a peer sends and that its scripts do not call. For
// rueidislock the two cannot be distinguished.
var redisCalls = map[string][]string{
	"bsm/redislock, each 1 ms":   {"evalsha", "eval"},
	"bsm/redislock, each 100 ms": {"evalsha", "eval"},
	"redsync":                    {"evalsha", "eval", "set"},
	"rueidislock":                nil,
	"rueidislock, majority of 1": nil,
}

// countRedis returns a function that counts the calls of commands, or nil without commands.
func countRedis(b *testing.B, addr string, commands []string) func(context.Context) (int64, error) {
	if commands == nil {
		return nil
	}
	c := redisClient(addr)
	b.Cleanup(func() { _ = c.Close() })
	return func(ctx context.Context) (n int64, err error) {
		stats, err := c.InfoMap(ctx, "commandstats").Result()
		if err != nil {
			return 0, err
		}
		for _, name := range commands {
			var calls int64
			if line, ok := stats["Commandstats"]["cmdstat_"+name]; ok {
				if _, err := fmt.Sscanf(line, "calls=%d,", &calls); err != nil {
					return 0, err
				}
			}
			n += calls
		}
		return n, nil
	}
}

// BenchmarkPeers measures each service once with a delay and once without, whatever b.N
// is. It reports the medians in round trips; -documents writes all results.
func BenchmarkPeers(b *testing.B) {
	for _, s := range services {
		b.Run(s.name, func(b *testing.B) {
			servers := s.start(b)
			for b.Loop() {
				c := Comparison{Service: s.name}
				delayed, closeProxies, err := measure.Delayed(servers.url, delay)
				if err != nil {
					b.Fatal(err)
				}
				c.Delayed = compare(b, s, delayed, servers)
				c.Delayed.Delay = delay
				closeProxies()
				c.Many = many(b, s, servers)
				c.Near = compare(b, s, servers.url, servers)
				c.Growth = grow(b, s, servers)
				comparisons = append(comparisons, c)
				for _, sum := range c.Delayed.Summaries() {
					b.ReportMetric(sum.Ratio, strings.ReplaceAll(fmt.Sprintf("RTT/%s/%s", sum.Target, sum.Scenario.Name()), " ", "-"))
				}
			}
		})
	}
}

// many measures workers that have a lock each.
func many(b *testing.B, s service, servers servers) *measure.Report {
	targets, closeAll := watched(b, servers, append([]measure.Target{measure.Interlock("Interlock", servers.url)}, s.peers(servers.url)...))
	defer closeAll()
	scen, err := measure.New(measure.Many, 64, 0, 0, *each)
	if err != nil {
		b.Fatal(err)
	}
	return run(b, s, targets, []measure.Scenario{scen})
}

// compare measures this library and its peers through url.
func compare(b *testing.B, s service, url string, counted servers) *measure.Report {
	targets, closeAll := watched(b, counted, append([]measure.Target{
		measure.Interlock("Interlock", url),
		measure.Interlock("Interlock, local hand-off", url, lock.WithLocalHandOff()),
	}, s.peers(url)...))
	defer closeAll()
	var scenarios []measure.Scenario
	for _, n := range []int{1, 16, 64} {
		kind := measure.Contended
		if n == 1 {
			kind = measure.Uncontended
		}
		scen, err := measure.New(kind, n, time.Millisecond, 5*time.Millisecond, *each)
		if err != nil {
			b.Fatal(err)
		}
		scenarios = append(scenarios, scen)
	}
	return run(b, s, targets, scenarios)
}

// watched returns the targets with the counters of the servers.
func watched(b *testing.B, counted servers, targets []measure.Target) (_ []measure.Target, closeAll func()) {
	for i := range targets {
		targets[i].Processor = counted.processor
		if err := targets[i].Watch(b.Context(), counted.url); err != nil {
			b.Fatal(err)
		}
		if commands, ok := redisCalls[targets[i].Name]; ok {
			targets[i].Operations = countRedis(b, addrOf(counted.url), commands)
		}
	}
	return targets, func() {
		for _, t := range targets {
			if t.Close != nil {
				t.Close()
			}
		}
	}
}

// grow measures waiters beside the peers, and dead waiters, in about a minute and a half.
func grow(b *testing.B, s service, servers servers) *measure.Report {
	targets, closeAll := watched(b, servers, append([]measure.Target{measure.Interlock("Interlock", servers.url)}, s.peers(servers.url)...))
	defer closeAll()
	var scenarios []measure.Scenario
	for _, one := range []struct {
		kind measure.Kind
		n    int
	}{{measure.Waiters, 16}, {measure.Waiters, 2000}, {measure.Dead, 2}} {
		n := one.n
		if testing.Short() {
			n = min(n, 32)
		}
		scen, err := measure.NewGrowth(one.kind, n, *each, -1, -1)
		if err != nil {
			b.Fatal(err)
		}
		scenarios = append(scenarios, scen)
	}
	return run(b, s, targets, scenarios)
}

func run(b *testing.B, s service, targets []measure.Target, scenarios []measure.Scenario) *measure.Report {
	r, err := measure.Run(b.Context(), measure.Plan{Targets: targets, Scenarios: scenarios, Rounds: *rounds, Progress: progress(s.name)})
	if err != nil {
		b.Fatal(err)
	}
	if bad := r.Violations(); len(bad) > 0 {
		b.Logf("violations: %s", strings.Join(bad, "; "))
	}
	return r
}
