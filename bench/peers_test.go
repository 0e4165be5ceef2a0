package bench

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
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
	documents = flag.String("documents", "", "write the pages of the benchmarks Peers, Shares and Growth that ran into this folder")
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
	if code == 0 && *documents != "" {
		if err := writeDocuments(*documents); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func writeDocuments(folder string) error {
	for _, page := range []struct {
		file     string
		measured int
		write    func(io.Writer) error
	}{
		{"performance.md", len(comparisons), func(w io.Writer) error { return Document(w, comparisons) }},
		{"performance-shares.md", len(shares), func(w io.Writer) error { return SharesDocument(w, shares) }},
		{"performance-growth.md", len(costs), func(w io.Writer) error { return GrowthDocument(w, costs) }},
	} {
		if page.measured == 0 {
			continue
		}
		var b bytes.Buffer
		if err := page.write(&b); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, page.file), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// service is a server and the peers on it. A URL contains the address once, so that the
// address of a proxy can replace it.
type service struct {
	name  string
	start func(b *testing.B) (url string)
	peers func(url string) []measure.Target
}

// noPeers is for services for which no other lock in Go is known.
func noPeers(string) []measure.Target { return nil }

func addrOf(url string) string {
	_, rest, _ := strings.Cut(url, "://")
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		rest = rest[i+1:]
	}
	addr, _, _ := strings.Cut(rest, "/")
	return addr
}

// manyConnections is for the clients of idle processes.
var manyConnections = provision.Options{Args: []string{"--max-connections=4000"}}

var services = []service{
	{"Redis", func(b *testing.B) string { return provision.NewRedis(b, provision.AnyRedis, provision.Options{}).URL() },
		func(url string) []measure.Target { return redisPeers(addrOf(url)) }},
	{"Redlock, five nodes", func(b *testing.B) string {
		var addrs []string
		for range 5 {
			addrs = append(addrs, addrOf(provision.NewRedis(b, provision.AnyRedis, provision.Options{}).URL()))
		}
		return "redlock://" + strings.Join(addrs, ",") + "/0"
	}, func(url string) []measure.Target {
		return []measure.Target{redsyncOn("redsync, five nodes", strings.Split(addrOf(url), ","))}
	}},
	{"etcd", func(b *testing.B) string { return provision.NewEtcd(b, provision.AnyEtcd, provision.Options{}).URL() },
		func(url string) []measure.Target { return etcdPeers(addrOf(url)) }},
	{"ZooKeeper", func(b *testing.B) string { return provision.NewZooKeeper(b, provision.AnyZooKeeper).URL() },
		func(url string) []measure.Target { return zooKeeperPeers(addrOf(url)) }},
	{"PostgreSQL", func(b *testing.B) string {
		return provision.NewPostgres(b, provision.Postgres15, "max_connections=2000").URL()
	}, postgresPeers},
	{"MySQL", func(b *testing.B) string { return provision.NewMySQL(b, provision.MySQL9, manyConnections).URL() }, mysqlPeers},
	{"MariaDB", func(b *testing.B) string {
		return provision.NewMySQL(b, provision.MariaDB10, manyConnections).URL()
	}, mysqlPeers},
	{"Memcached", func(b *testing.B) string { return provision.NewMemcached(b, provision.Options{}).URL() }, noPeers},
	{"NATS", func(b *testing.B) string { return provision.NewNATS(b, provision.NATS2, provision.Options{}).URL() }, noPeers},
	{"S3 (Versity Gateway)", func(b *testing.B) string { return provision.NewS3(b, provision.VersityGW, provision.Options{}).URL() }, noPeers},
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
			url := s.start(b)
			for b.Loop() {
				c := Comparison{Service: s.name}
				delayed, closeProxies, err := measure.Delayed(url, delay)
				if err != nil {
					b.Fatal(err)
				}
				c.Delayed = compare(b, s, delayed, url)
				c.Delayed.Delay = delay
				closeProxies()
				c.Near = compare(b, s, url, url)
				c.Growth = grow(b, s, url)
				comparisons = append(comparisons, c)
				for _, sum := range c.Delayed.Summaries() {
					b.ReportMetric(sum.Ratio, strings.ReplaceAll(fmt.Sprintf("RTT/%s/%s", sum.Target, sum.Scenario.Name()), " ", "-"))
				}
			}
		})
	}
}

// compare measures this library and its peers through url. counted is the URL of the
// server, which counts the operations.
func compare(b *testing.B, s service, url, counted string) *measure.Report {
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

// watched returns the targets with the counters of the server at the URL counted.
func watched(b *testing.B, counted string, targets []measure.Target) (_ []measure.Target, closeAll func()) {
	for i := range targets {
		if err := targets[i].Watch(b.Context(), counted); err != nil {
			b.Fatal(err)
		}
		if commands, ok := redisCalls[targets[i].Name]; ok {
			targets[i].Operations = countRedis(b, addrOf(counted), commands)
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
func grow(b *testing.B, s service, url string) *measure.Report {
	targets, closeAll := watched(b, url, append([]measure.Target{measure.Interlock("Interlock", url)}, s.peers(url)...))
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
