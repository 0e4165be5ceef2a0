package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/lockcmd"
)

type conformanceFlags struct {
	only           string
	full           bool
	reportJSON     string
	reportMarkdown string
}

func conformanceCommand(a *lockcmd.App) *lockcmd.Command {
	var f conformanceFlags
	flags := lockcmd.NewFlagSet()
	flags.StringVar(&f.only, "run", "", "only the cases whose id matches this regular expression")
	flags.BoolVar(&f.full, "full", false, "more rounds and longer sweeps")
	flags.StringVar(&f.reportJSON, "report-json", "", "write the report as JSON to this file")
	flags.StringVar(&f.reportMarkdown, "report-md", "", "write the report as Markdown to this file")
	return &lockcmd.Command{
		Use:   "conformance",
		Short: "Check a service against the contract of the library",
		Long: `Run the conformance suite of the drivers against a live service: exclusion, waiting,
cancellation, release, leases, loss, fencing, names. Cases that need control over the
server or the network are reported as not run. The exit code is 1 if a case failed.

The suite uses keys of its own and breaks no other locks, but it loads the service for
a minute or so, and the token counters of its keys remain: use a database or a
directory of its own.`,
		Example: `  lockbench conformance --url redis://localhost:6379/15
  lockbench conformance --run '^exclusion' --report-md conformance.md`,
		Flags: flags,
		Run: func(ctx context.Context, _ []string) error {
			if _, err := regexp.Compile(f.only); err != nil {
				return lockcmd.Usagef("invalid --run %q: want a regular expression: %w", f.only, err)
			}
			return lockcmd.UntilSignal(ctx, func(ctx context.Context) error { return checkConformance(ctx, a, &f) })
		},
	}
}

func checkConformance(ctx context.Context, a *lockcmd.App, f *conformanceFlags) error {
	url, err := a.URL()
	if err != nil {
		return err
	}
	harness := conformance.Harness{Open: openBackend(url), Worker: conformance.Self(url)}
	r, err := conformance.Check(ctx, harness, conformanceOptions(a, f, url)...)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil: // no service, which is not a failed case
		return lockcmd.Unavailable(err)
	case len(r.Results) == 0:
		return lockcmd.Usagef("invalid --run %q: no case has such an id", f.only)
	}
	if err := writeReports(r, f); err != nil {
		return err
	}
	if err := a.Result(r, func(w io.Writer) { writeReport(w, r) }); err != nil {
		return err
	}
	if !r.OK() {
		return fmt.Errorf("failed cases: %d", r.Count(conformance.Failed))
	}
	return nil
}

// openBackend returns a function that opens the driver of a URL without a client.
func openBackend(url string) func(context.Context) (backend.Backend, error) {
	return func(ctx context.Context) (backend.Backend, error) {
		u, err := backend.ParseURL(url)
		if err != nil {
			return nil, err
		}
		// The parameters that lock.Open reads.
		u.Params.Duration("ttl", 0)
		u.Params.Bool("renew", true)
		u.Params.Bool("local_hand_off", false)
		return backend.Open(ctx, u)
	}
}

func conformanceOptions(a *lockcmd.App, f *conformanceFlags, url string) []conformance.Option {
	var opts []conformance.Option
	if u, err := backend.ParseURL(url); err == nil && u.Params.Bool("local_hand_off", false) {
		opts = append(opts, conformance.Clients(lock.WithLocalHandOff()))
	}
	if f.only != "" {
		opts = append(opts, conformance.Only(f.only))
	}
	if f.full {
		opts = append(opts, conformance.Full())
	}
	if log := a.Logger(); log != nil {
		opts = append(opts, conformance.Log(func(format string, args ...any) { log.Debug(fmt.Sprintf(format, args...)) }))
	}
	return opts
}

func writeReports(r *conformance.Report, f *conformanceFlags) error {
	if f.reportJSON != "" {
		text, err := r.JSON()
		if err != nil {
			return err
		}
		if err := os.WriteFile(f.reportJSON, append(text, '\n'), 0o644); err != nil { //nolint:gosec // a report is for all users
			return err
		}
	}
	if f.reportMarkdown != "" {
		return os.WriteFile(f.reportMarkdown, []byte(r.Markdown()), 0o644) //nolint:gosec // a report is for all users
	}
	return nil
}

func writeReport(w io.Writer, r *conformance.Report) {
	for _, res := range r.Results {
		fmt.Fprintf(w, "%-12s  %s  %s\n", res.Status, res.ID, res.Title)
		if res.Status == conformance.Failed {
			fmt.Fprintf(w, "  %s\n", strings.ReplaceAll(res.Reason, "\n", "\n  "))
		}
	}
	fmt.Fprintln(w, r.Summary())
}
