package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/interlock-go/lock/cmd/lockbench/measure"
	"github.com/interlock-go/lock/lockcmd"
)

type benchFlags struct {
	urls       []string
	scenarios  []string
	workers    []int
	hold       time.Duration
	think      time.Duration
	measure    time.Duration
	rounds     int
	ttl        time.Duration
	settle     time.Duration
	delay      time.Duration
	compare    string
	reportJSON string
	reportHTML string
}

func benchCommand(a *lockcmd.App) *lockcmd.Command {
	f := benchFlags{scenarios: []string{"uncontended", "contended"}}
	flags := lockcmd.NewFlagSet()
	flags.Var((*repeated)(&f.urls), "url", "a service to measure; may be repeated; NAME=URL names it (default as for the other commands)")
	flags.Var((*list)(&f.scenarios), "scenario", "scenarios: "+kinds())
	flags.Var((*numbers)(&f.workers), "workers", "number of workers, in all scenarios but uncontended (default 16); N in scenarios of growth (default: see above)")
	flags.DurationVar(&f.hold, "hold", time.Millisecond, "how long a worker holds a lock")
	flags.DurationVar(&f.think, "think", 5*time.Millisecond, "how long a worker pauses afterwards")
	flags.DurationVar(&f.measure, "for", 2*time.Second, "length of each measurement")
	flags.IntVar(&f.rounds, "rounds", 5, "number of rounds; 4 or more for --compare")
	flags.DurationVar(&f.ttl, "ttl", -1, "TTL in scenarios dead and outage (default 10s)")
	flags.DurationVar(&f.settle, "settle", -1, "pause before scenario idle-processes (default 1m5s)")
	flags.DurationVar(&f.delay, "delay", 0, "delay to inject, each way, in whole milliseconds")
	flags.StringVar(&f.compare, "compare", "", "an earlier JSON report to compare with")
	flags.StringVar(&f.reportJSON, "report-json", "", "write the measurements as JSON to this file")
	flags.StringVar(&f.reportHTML, "report-html", "", "write the report as one HTML page to this file")
	flags.Complete("url", lockcmd.CompleteURL)
	flags.CompleteList("scenario", func() []string { return strings.Split(kinds(), ", ") })
	return &lockcmd.Command{
		Use:   "bench",
		Short: "Compare services by measurement",
		Long: `Measure the same scenarios against any number of services in one run, in turns, and
report latencies, throughput, fairness and the cost for the server. Times are also
given in round trips (RTT): multiples of the service's own ping.

Scenarios: ` + join(measure.Kinds) + `.
uncontended has one worker; contended has many workers of several clients on one lock;
in hot they are workers of one client; in many each has a lock of its own; in idle they
wait for a lock that is held throughout.

Scenarios of growth measure a cost over a number N, once for each N, and show that it
stays flat: ` + join(measure.Growths) + `.
waiters has N workers of four clients, all in the queue of one lock (16, 500, 2000, 10000).
idle-processes has 16 workers beside N other clients that waited once (0, 400).
dead has N dead waiters of one process, and of N processes, killed and stopped (2, 20).
names uses N locks once and counts what is left after two minutes, with a retention of
one minute (100000). outage cuts the service off for 0.6 TTL while N goroutines call Lock
with 100 ms each (2000). A scenario is left out where it cannot be: dead and outage need
other processes and a network. They load the service: use a database of its own.

With --delay a proxy delays all data, each way, so that round trips can be counted and
a distant service simulated. --report-html writes one page with charts that needs no
network. --report-json writes the measurements, for a later --compare, which reports
significant differences only. The exit code is 1 if two holders were seen at the same
time or a fencing token did not rise.`,
		Example: `  lockbench bench --url redis://localhost:6379/15 --url etcd://localhost:2379
  lockbench bench --url a=redis://ten.example/0 --url b=redis://eleven.example/0 --workers 64
  lockbench bench --url redis://localhost:6379/15 --delay 2ms --report-html locks.html
  lockbench bench --url redis://localhost:6379/15 --scenario waiters,dead --report-html growth.html
  lockbench bench --url redis://localhost:6379/15 --report-json now.json --compare before.json`,
		Flags: flags,
		Run: func(ctx context.Context, _ []string) error {
			scenarios, err := f.plan()
			if err != nil {
				return err
			}
			return lockcmd.UntilSignal(ctx, func(ctx context.Context) error { return bench(ctx, a, &f, scenarios) })
		},
	}
}

func kinds() string { return join(measure.Kinds) + ", " + join(measure.Growths) }

func join(kinds []measure.Kind) string {
	var names []string
	for _, k := range kinds {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

// plan returns each scenario with each number of workers that it allows.
func (f *benchFlags) plan() ([]measure.Scenario, error) {
	if f.rounds < 1 || f.rounds > 1000 {
		return nil, lockcmd.Usagef("invalid --rounds %d: want 1 to 1000", f.rounds)
	}
	var out []measure.Scenario
	for _, name := range f.scenarios {
		kind := measure.Kind(name)
		numbers := measure.Numbers(kind)
		growth := numbers != nil
		switch {
		case len(f.workers) > 0:
			numbers = f.workers
		case !growth:
			numbers = []int{16}
		}
		for _, n := range numbers {
			s, err := measure.New(kind, n, f.hold, f.think, f.measure)
			if growth {
				s, err = measure.NewGrowth(kind, n, f.measure, f.ttl, f.settle)
			}
			if err != nil {
				return nil, lockcmd.Usagef("%w", err)
			}
			if !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
	}
	if len(out) == 0 {
		return nil, lockcmd.Usagef("nothing to measure: want at least one --scenario and one of --workers")
	}
	return out, nil
}

func bench(ctx context.Context, a *lockcmd.App, f *benchFlags, scenarios []measure.Scenario) error {
	var old *measure.Report
	if f.compare != "" {
		var err error
		if old, err = readReport(f.compare); err != nil {
			return err
		}
	}
	targets, err := openTargets(ctx, a, f)
	defer func() {
		for _, t := range targets {
			if t.Close != nil {
				t.Close()
			}
		}
	}()
	if err != nil {
		return err
	}
	r, err := measure.Run(ctx, measure.Plan{Targets: targets, Scenarios: scenarios, Rounds: f.rounds, Progress: progress(a)})
	if err != nil {
		return lockcmd.Unavailable(err)
	}
	r.Delay, r.Command = f.delay, displayArgs(os.Args)
	var changes []measure.Change
	if old != nil {
		changes = measure.Compare(old, r)
	}
	if err := f.write(r, changes); err != nil {
		return err
	}
	if err := a.Result(r, func(w io.Writer) {
		r.Table(w)
		if old != nil {
			measure.WriteChanges(w, changes)
		}
	}); err != nil {
		return err
	}
	if bad := r.Violations(); len(bad) > 0 {
		return fmt.Errorf("not a lock: %s", strings.Join(bad, "; "))
	}
	return nil
}

// progress shows on a terminal what is measured, on one line.
func progress(a *lockcmd.App) func(done, all int, name string) {
	if !a.Interactive() {
		return nil
	}
	return func(done, all int, name string) {
		fmt.Fprintf(a.Err, "\r\x1b[K%s: %d of %d: %s", a.Program.Name, done+1, all, name)
		if done+1 == all {
			fmt.Fprintln(a.Err)
		}
	}
}

func readReport(path string) (*measure.Report, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, lockcmd.Usagef("invalid --compare: %w", err)
	}
	defer in.Close()
	r, err := measure.Read(in)
	if err != nil {
		return nil, lockcmd.Usagef("invalid --compare %q: %w", path, err)
	}
	return r, nil
}

func (f *benchFlags) write(r *measure.Report, changes []measure.Change) error {
	save := func(path string, write func(io.Writer) error) error {
		if path == "" {
			return nil
		}
		out, err := os.Create(path)
		if err != nil {
			return err
		}
		return errors.Join(write(out), out.Close())
	}
	return errors.Join(
		save(f.reportJSON, r.Write),
		save(f.reportHTML, func(w io.Writer) error { return r.HTML(w, changes) }),
	)
}
