package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
)

type conformanceFlags struct {
	only           string
	full           bool
	reportJSON     string
	reportMarkdown string
}

func (a *app) conformanceCommand() *cobra.Command {
	var f conformanceFlags
	c := &cobra.Command{
		Use:   "conformance",
		Short: "Check a service against the contract of the library",
		Long: `Run the suite that judges every driver against a live service: exclusion,
waiting, cancellation, release, leases, loss, fencing, names. The cases that would
need control over the server or the network are reported as not run. The exit code
is 1 if a case failed.

It uses keys of its own and disturbs nobody's locks, but it loads the service for
a minute or so, and the token counters of its keys remain: better use a database
or a folder of its own.`,
		Example: `  lockctl conformance --url redis://localhost:6379/15
  lockctl conformance --run '^exclusion' --report-md conformance.md`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return a.conformance(cmd.Context(), &f) },
	}
	fl := c.Flags()
	fl.StringVar(&f.only, "run", "", "only the cases whose id matches this regular expression")
	fl.BoolVar(&f.full, "full", false, "more rounds and longer sweeps")
	fl.StringVar(&f.reportJSON, "report-json", "", "write the report as JSON to this file")
	fl.StringVar(&f.reportMarkdown, "report-md", "", "write the report as Markdown to this file")
	return c
}

func (a *app) conformance(ctx context.Context, f *conformanceFlags) error {
	if _, err := regexp.Compile(f.only); err != nil {
		return usagef("invalid --run %q: want a regular expression: %w", f.only, err)
	}
	url, err := chooseURL(a.url, a.getenv)
	if err != nil {
		return err
	}
	ctx, stop := untilSignal(ctx)
	defer stop()

	open := func(ctx context.Context) (backend.Backend, error) {
		u, err := backend.ParseURL(url)
		if err != nil {
			return nil, err
		}
		// what lock.Open reads for itself
		u.Params.Duration("ttl", 0)
		u.Params.Bool("renew", true)
		u.Params.Bool("local_hand_off", false)
		return backend.Open(ctx, u)
	}
	opts := []conformance.Option{}
	if u, err := backend.ParseURL(url); err == nil && u.Params.Bool("local_hand_off", false) {
		opts = append(opts, conformance.Clients(lock.WithLocalHandOff()))
	}
	if f.only != "" {
		opts = append(opts, conformance.Only(f.only))
	}
	if f.full {
		opts = append(opts, conformance.Full())
	}
	if log := a.logger(); log != nil {
		opts = append(opts, conformance.Log(func(format string, args ...any) { log.Debug(fmt.Sprintf(format, args...)) }))
	}
	r, err := conformance.Check(ctx, conformance.Harness{Open: open, Worker: conformance.Self(url)}, opts...)
	switch {
	case ctx.Err() != nil:
		return interrupted(ctx, context.Cause(ctx))
	case err != nil: // a service that is not there is not one that fails the suite
		return &failure{openCode(err), err}
	}
	if len(r.Results) == 0 {
		return usagef("invalid --run %q: no case has such an id", f.only)
	}
	if err := writeReports(r, f); err != nil {
		return err
	}
	if err := a.result(r, func(w io.Writer) { writeReport(w, r) }); err != nil {
		return err
	}
	if !r.OK() {
		return &failure{codeFailed, fmt.Errorf("failed cases: %d", r.Count(conformance.Failed))}
	}
	return nil
}

func openCode(err error) int {
	if code := codeOf(err); code != codeFailed {
		return code
	}
	return codeUnavailable
}

func writeReports(r *conformance.Report, f *conformanceFlags) error {
	if f.reportJSON != "" {
		text, err := r.JSON()
		if err != nil {
			return err
		}
		if err := os.WriteFile(f.reportJSON, append(text, '\n'), 0o644); err != nil { //nolint:gosec // a report is there to be read
			return err
		}
	}
	if f.reportMarkdown != "" {
		return os.WriteFile(f.reportMarkdown, []byte(r.Markdown()), 0o644) //nolint:gosec // a report is there to be read
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
