package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock/cmd/lockbench/measure"
)

// Of these services every scenario is measured, of the others waiters and names.
var growing = map[string]bool{"Redis": true, "etcd": true, "ZooKeeper": true, "PostgreSQL": true, "MySQL": true, "MariaDB": true}

// Of these services the rows, keys or nodes can be counted.
var counted = map[string]bool{"Redis": true, "etcd": true, "ZooKeeper": true, "PostgreSQL": true, "MySQL": true, "MariaDB": true, "Memcached": true}

// mostWaiters are the waiters of the services that are measured with more than 2,000.
var mostWaiters = map[string]int{"Redis": 10_000, "etcd": 10_000, "PostgreSQL": 10_000}

// mostHeld are the leases of the services that cannot renew 20,000 of them on one machine: each renewal is a write of an
// object, or a request to each of five servers.
var mostHeld = map[string]int{"S3 (Versity Gateway)": 2_000, "Redlock, five nodes": 4_000}

const namesStart = 30 * time.Second // between the services, which use names for up to a minute

// BenchmarkGrowth measures the costs of this library that must not grow, once whatever b.N
// is. -documents writes them.
func BenchmarkGrowth(b *testing.B) {
	reports := map[string][]*measure.Report{}
	for _, s := range services {
		b.Run(s.name, func(b *testing.B) {
			servers := s.start(b)
			for b.Loop() {
				r, err := growth(b.Context(), s, servers, growthScenarios(b, s.name))
				if err != nil {
					b.Fatal(err)
				}
				reports[s.name] = append(reports[s.name], r)
			}
		})
	}
	b.Run("names", func(b *testing.B) {
		for b.Loop() {
			for name, r := range names(b) {
				reports[name] = append(reports[name], r)
			}
		}
	})
	for _, s := range services {
		if r := reports[s.name]; len(r) > 0 {
			costs = append(costs, Costs{s.name, r})
		}
	}
}

func growthScenarios(b *testing.B, service string) []measure.Scenario {
	var all []measure.Scenario
	add := func(kind measure.Kind, numbers ...int) {
		for _, n := range numbers {
			if testing.Short() {
				n = min(n, 32)
			}
			scen, err := measure.NewGrowth(kind, n, *each, -1, -1)
			if err != nil {
				b.Fatal(err)
			}
			if !slices.Contains(all, scen) {
				all = append(all, scen)
			}
		}
	}
	add(measure.Waiters, 16, 200, 2000)
	if n, ok := mostWaiters[service]; ok {
		add(measure.Waiters, n)
	}
	if !testing.Short() { // each of these takes a minute or more
		add(measure.Held, cmp.Or(mostHeld[service], 20_000))
	}
	if growing[service] && !testing.Short() {
		add(measure.IdleProcesses, 0, 400)
		add(measure.Dead, 2, 20)
		add(measure.Outage, 2000)
	}
	return all
}

// names measures the names of all services. They take turns at using theirs, and wait for the
// retention beside each other.
func names(b *testing.B) map[string]*measure.Report {
	if testing.Short() {
		return nil // the least retention is a minute
	}
	scen, err := measure.NewGrowth(measure.Names, 100_000, *each, -1, -1)
	if err != nil {
		b.Fatal(err)
	}
	var (
		all     sync.WaitGroup
		mu      sync.Mutex
		reports = map[string]*measure.Report{}
	)
	defer all.Wait() // also if a server does not start
	for _, s := range services {
		if !counted[s.name] {
			continue
		}
		servers := s.start(b)
		all.Go(func() {
			r, err := growth(b.Context(), s, servers, []measure.Scenario{scen})
			if err != nil {
				b.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			reports[s.name] = r
		})
		time.Sleep(namesStart)
	}
	all.Wait()
	return reports
}

func growth(ctx context.Context, s service, servers servers, scenarios []measure.Scenario) (*measure.Report, error) {
	target := measure.Interlock("Interlock", servers.url)
	target.Processor = servers.processor
	if err := target.Watch(ctx, servers.url); err != nil {
		return nil, err
	}
	if target.Close != nil {
		defer target.Close()
	}
	return measure.Run(ctx, measure.Plan{Targets: []measure.Target{target}, Scenarios: scenarios, Rounds: 1, Progress: progress(s.name)})
}

// progress returns a function that writes a line for each measurement of a service.
func progress(service string) func(done, all int, what string) {
	return func(done, all int, what string) {
		fmt.Fprintf(os.Stderr, "%s %s, %d of %d: %s\n", time.Now().Format(time.TimeOnly), service, done+1, all, what)
	}
}
