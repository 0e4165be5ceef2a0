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

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/cmd/lockctl/measure"
)

type benchFlags struct {
	urls       []string
	scenarios  []string
	workers    []int
	hold       time.Duration
	think      time.Duration
	measure    time.Duration
	rounds     int
	delay      time.Duration
	compare    string
	reportJSON string
	reportHTML string
}

func (a *app) benchCommand() *cobra.Command {
	var f benchFlags
	c := &cobra.Command{
		Use:   "bench",
		Short: "Compare services by measurement",
		Long: `Measure the same scenarios against any number of services in one run, in turns,
and report latencies, throughput, fairness and what it costs the server. Times are
also given in round trips (RTT): multiples of the service's own ping.

Scenarios: ` + kinds() + `.
uncontended is one worker; contended has many of several clients on one lock; hot
has all of them in one client; in many each has a lock of its own; in idle they wait
for a lock that is held throughout.

With --delay a proxy holds back whatever is sent, each way, so that round trips can
be counted and a distant service simulated. --report-html writes one page with
charts that needs no network, --report-json the measurements themselves, which
--compare later tells from noise. The exit code is 1 if two holders were seen at
once or a fencing token did not rise.`,
		Example: `  lockctl bench --url redis://localhost:6379/15 --url etcd://localhost:2379
  lockctl bench --url a=redis://ten.example/0 --url b=redis://eleven.example/0 --workers 64
  lockctl bench --url redis://localhost:6379/15 --delay 2ms --report-html locks.html
  lockctl bench --url redis://localhost:6379/15 --report-json now.json --compare before.json`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return a.bench(cmd.Context(), &f) },
	}
	fl := c.Flags()
	fl.StringArrayVar(&f.urls, "url", nil, "what to measure, as often as you like; NAME=URL names it (default as for the other commands)")
	fl.StringSliceVar(&f.scenarios, "scenario", []string{"uncontended", "contended"}, "what to do: "+kinds())
	fl.IntSliceVar(&f.workers, "workers", []int{16}, "how many workers, in all scenarios but uncontended")
	fl.DurationVar(&f.hold, "hold", time.Millisecond, "how long a worker holds a lock")
	fl.DurationVar(&f.think, "think", 5*time.Millisecond, "how long a worker pauses afterwards")
	fl.DurationVar(&f.measure, "for", 2*time.Second, "how long each measurement takes")
	fl.IntVar(&f.rounds, "rounds", 5, "how often everything is measured; 4 or more for --compare")
	fl.DurationVar(&f.delay, "delay", 0, "delay to inject, each way, in whole milliseconds")
	fl.StringVar(&f.compare, "compare", "", "an earlier JSON report to compare with")
	fl.StringVar(&f.reportJSON, "report-json", "", "write the measurements as JSON to this file")
	fl.StringVar(&f.reportHTML, "report-html", "", "write the report as one HTML page to this file")
	_ = c.RegisterFlagCompletionFunc("url", completeURL)
	return c
}

func kinds() string {
	var names []string
	for _, k := range measure.Kinds {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

func (a *app) bench(ctx context.Context, f *benchFlags) (err error) {
	if f.rounds < 1 || f.rounds > 1000 {
		return usagef("invalid --rounds %d: want 1 to 1000", f.rounds)
	}
	scenarios, err := f.plan()
	if err != nil {
		return err
	}
	var old *measure.Report
	if f.compare != "" {
		if old, err = readReport(f.compare); err != nil {
			return err
		}
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	p := measure.Plan{Scenarios: scenarios, Rounds: f.rounds, Progress: a.progress()}
	defer func() {
		for _, t := range p.Targets {
			if t.Close != nil {
				t.Close()
			}
		}
	}()
	if p.Targets, err = a.targets(ctx, f); err != nil {
		return interrupted(ctx, err)
	}
	r, err := measure.Run(ctx, p)
	if err != nil {
		return interrupted(ctx, &failure{openCode(err), err})
	}
	r.Delay, r.Command = f.delay, shownArgs(os.Args)
	var changes []measure.Change
	if old != nil {
		changes = measure.Compare(old, r)
	}
	if err := f.write(r, changes); err != nil {
		return err
	}
	if err := a.result(r, func(w io.Writer) {
		r.Table(w)
		if old != nil {
			measure.WriteChanges(w, changes)
		}
	}); err != nil {
		return err
	}
	if bad := r.Violations(); len(bad) > 0 {
		return &failure{codeFailed, fmt.Errorf("not a lock: %s", strings.Join(bad, "; "))}
	}
	return nil
}

// plan is every scenario with every number of workers that makes sense for it.
func (f *benchFlags) plan() ([]measure.Scenario, error) {
	var out []measure.Scenario
	for _, name := range f.scenarios {
		for _, n := range f.workers {
			s, err := measure.New(measure.Kind(name), n, f.hold, f.think, f.measure)
			if err != nil {
				return nil, usagef("%w", err)
			}
			if !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
	}
	if len(out) == 0 {
		return nil, usagef("nothing to measure: want at least one --scenario and one of --workers")
	}
	return out, nil
}

// targets opens what is to be measured. What it returns with an error is to be closed too.
func (a *app) targets(ctx context.Context, f *benchFlags) ([]measure.Target, error) {
	urls := f.urls
	if len(urls) == 0 {
		u, err := chooseURL("", a.getenv)
		if err != nil {
			return nil, err
		}
		urls = []string{u}
	}
	var out []measure.Target
	for _, given := range urls {
		name, url := named(given)
		u, err := backend.ParseURL(url)
		if err != nil {
			return out, usagef("%w", redacted{err})
		}
		if name == "" {
			name = u.Scheme
			for n := 2; slices.ContainsFunc(out, func(t measure.Target) bool { return t.Name == name }); n++ {
				name = fmt.Sprintf("%s %d", u.Scheme, n)
			}
		}
		if slices.ContainsFunc(out, func(t measure.Target) bool { return t.Name == name }) {
			return out, usagef("two targets named %q: want a name of its own for each --url NAME=URL", name)
		}
		t := measure.Target{}
		measured, closeProxies := url, func() {}
		if f.delay != 0 {
			if measured, closeProxies, err = measure.Delayed(url, f.delay); err != nil {
				return out, usagef("%w", err)
			}
		}
		t = measure.Interlock(name, measured)
		t.Close = closeProxies
		if err := t.Watch(ctx, url); err != nil {
			a.notice("uncounted", fmt.Sprintf("%s: the operations of its server will not be counted: %v", name, redacted{err}), nil)
		}
		out = append(out, t)
	}
	return out, nil
}

// named splits NAME=URL; a URL has its first "=" behind its first ":".
func named(s string) (name, url string) {
	name, url, ok := strings.Cut(s, "=")
	if !ok || name == "" || strings.ContainsAny(name, ":/") {
		return "", s
	}
	return name, url
}

// progress tells on a terminal what is being measured, on one line.
func (a *app) progress() func(done, all int, what string) {
	if a.json || a.quiet || !term.IsTerminal(int(a.err.Fd())) {
		return nil
	}
	return func(done, all int, what string) {
		fmt.Fprintf(a.err, "\r\x1b[Klockctl: %d of %d: %s", done+1, all, what)
		if done+1 == all {
			fmt.Fprintln(a.err)
		}
	}
}

func readReport(path string) (*measure.Report, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, usagef("invalid --compare: %w", err)
	}
	defer in.Close()
	r, err := measure.Read(in)
	if err != nil {
		return nil, usagef("invalid --compare %q: %w", path, err)
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

// shownArgs is the command line as it may be shown: users, passwords and parameters
// of URLs left out.
func shownArgs(args []string) []string {
	out := []string{"lockctl"}
	for _, arg := range args[1:] {
		flag, rest := "", arg
		if i := strings.Index(arg, "--url="); i == 0 {
			flag, rest = "--url=", arg[len("--url="):]
		}
		name, url := named(rest)
		if strings.Contains(url, "://") {
			if name != "" {
				name += "="
			}
			rest = name + display(url)
		}
		out = append(out, flag+rest)
	}
	return out
}
