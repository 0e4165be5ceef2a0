package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// Check runs the suite without package testing. It returns an error only if no
// case could be run; a case that fails is in the report.
func Check(ctx context.Context, h Harness, opts ...Option) (*Report, error) {
	r, err := newRunner(ctx, h, opts)
	if err != nil {
		return nil, err
	}
	return r.run(ctx, r.selected(), func(*Case, Result) {}), nil
}

type runner struct {
	h     Harness
	o     *options
	caps  backend.Capabilities
	probe backend.Backend
	cases []Case
}

func newRunner(ctx context.Context, h Harness, opts []Option) (*runner, error) {
	if h.Open == nil {
		return nil, fmt.Errorf("%w harness: Open is nil", backend.ErrInvalid)
	}
	what := "conformance"
	if h.Name != "" {
		what += " of " + h.Name
	}
	b, err := h.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: open: %w", what, err)
	}
	r := &runner{h: h, o: newOptions(opts), probe: b, cases: Cases()}
	c, err := lock.New(b, append([]lock.Option{lock.WithLogger(nil)}, r.o.clients...)...)
	if err != nil {
		_ = b.Close(ctx)
		return nil, fmt.Errorf("%s: new: %w", what, err)
	}
	r.caps = c.Capabilities()
	if r.h.Name == "" {
		r.h.Name = r.caps.Name
	}
	if err := b.Close(ctx); err != nil {
		return nil, fmt.Errorf("%s: close: %w", what, err)
	}
	return r, nil
}

// selected returns the cases that the options ask for.
func (r *runner) selected() []*Case {
	var out []*Case
	for i := range r.cases {
		if r.o.only == nil || r.o.only.MatchString(r.cases[i].ID) {
			out = append(out, &r.cases[i])
		}
	}
	return out
}

// run runs the cases, in parallel where a case permits it, and reports each outcome when
// it is known. A case of which nothing could be learned beside others is repeated by itself.
func (r *runner) run(ctx context.Context, cases []*Case, report func(*Case, Result)) *Report {
	rep := &Report{Name: r.h.Name, Suite: suiteVersion(), Driver: driverVersion(r.probe), Capabilities: r.caps, Budget: r.h.Budget, Started: time.Now(), Full: r.o.full}
	results := make([]Result, len(cases))
	// one runs a case and reports whether its outcome is known.
	one := func(i int) bool {
		results[i] = r.runCase(ctx, cases[i])
		if results[i].Status == inconclusive {
			return false
		}
		report(cases[i], results[i])
		return true
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, r.o.parallel)
	for i, c := range cases {
		if !c.alone {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				one(i)
			})
		}
	}
	wg.Wait()
	for i, c := range cases {
		if !c.alone && results[i].Status != inconclusive {
			continue
		}
		known := false
		for n := 0; n < mostAgain && !known; n++ {
			known = one(i)
		}
		if !known {
			results[i].Status = Failed
			report(c, results[i])
		}
	}
	rep.Results, rep.Duration = results, time.Since(rep.Started)
	return rep
}

// shortStall is that of a machine that is only busy. Longer ones are reported with a failure.
const shortStall = 250 * time.Millisecond

// cleanupTime bounds what a case leaves to be closed. A driver that ignores its
// context is left behind.
const cleanupTime = 15 * time.Second

func (r *runner) runCase(ctx context.Context, c *Case) Result {
	res := Result{ID: c.ID, Title: c.Title, Clause: c.Clause}
	if reason, ok := r.o.except[c.ID]; ok {
		res.Status, res.Reason = NotRun, reason
		return res
	}
	if c.long && !r.o.full {
		res.Status, res.Reason = NotRun, "it runs in the long tier only, with the option Full"
		return res
	}
	limit := r.o.caseTimeout
	if c.alone {
		limit *= 2
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	t := &T{ctx: ctx, h: &r.h, o: r.o, c: c, caps: r.caps, probe: r.probe, start: time.Now()}

	late := t.lateness()
	// Shortly before the end of the case its waits end too.
	stalls := time.AfterFunc(limit-limit/20, t.noteStall)
	defer stalls.Stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				t.errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		for _, n := range c.needs {
			if s, why := n.check(t); s == Failed {
				t.fatalf("%s", why)
			} else if s != "" {
				t.mu.Lock()
				t.status, t.reason = s, why
				t.mu.Unlock()
				return
			}
		}
		c.run(t)
	}()
	select {
	case <-done:
	case <-time.After(limit + r.h.slack()):
		t.errorf("the case did not end within %v; goroutines:\n%s", limit, stacks())
	}
	if t.undecided() && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.errorf("the case did not end within %v", limit)
	}
	t.cleanUp(cancel)

	t.mu.Lock()
	defer t.mu.Unlock()

	res.Duration = time.Since(t.start)
	switch {
	case len(t.failures) > 0:
		res.Status, res.Reason = Failed, t.failureText()
		if worst := late(); worst >= shortStall {
			res.Reason += fmt.Sprintf("\nthis machine stood still for up to %v", worst.Round(time.Millisecond))
		}
	case t.status == inconclusive:
		res.Status, res.Reason = inconclusive, fmt.Sprintf("contract: %s\n  - nothing could be learned in %d runs: %s", c.Clause, mostAgain, t.reason)
	case t.status == NotRun && r.o.requireHooks:
		res.Status, res.Reason = Failed, "not run, though required: "+t.reason
	case t.status != "":
		res.Status, res.Reason = t.status, t.reason
	default:
		res.Status = Passed
	}
	if r.o.log != nil {
		r.o.log("%-12s %s (%v) %s", res.Status, c.ID, res.Duration.Round(time.Millisecond), res.Reason)
	}
	return res
}

// cleanUp closes what the case opened, last first.
func (t *T) cleanUp(cancel context.CancelFunc) {
	t.mu.Lock()
	todo := slices.Clone(t.cleanups)
	t.mu.Unlock()
	slices.Reverse(todo)
	ctx, stop := context.WithTimeout(context.Background(), cleanupTime)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		cancel() // whatever still waits in the case's name gives up first
		for _, f := range todo {
			f(ctx)
		}
	}()
	grace := cleanupTime
	if t.failed() {
		grace = t.h.slack() // what is broken may not be able to close
	}
	select {
	case <-done:
	case <-time.After(grace):
		t.errorf("closing what the case had opened: want it done within %v, it was still under way", grace)
	}
}

// undecided reports whether the case has neither failed nor ended itself for another reason.
func (t *T) undecided() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.failures) == 0 && t.status == ""
}

// noteStall records which clients wait, once.
func (t *T) noteStall() {
	text := t.waits.text(t.inspected)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stalled == "" {
		t.stalled = text
	}
}

func (t *T) failureText() string {
	var b strings.Builder
	fmt.Fprintf(&b, "contract: %s\n", t.c.Clause)
	for _, f := range t.failures {
		fmt.Fprintf(&b, "  - %s\n", indent(f))
	}
	if t.stalled != "" {
		fmt.Fprintf(&b, "waiting at that time:\n    %s\n", indent(t.stalled))
	}
	if len(t.notes) > 0 {
		b.WriteString("before that:\n")
		for _, n := range t.notes {
			fmt.Fprintf(&b, "    %s\n", indent(n))
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

func stacks() string {
	buf := make([]byte, 8<<20)
	return string(buf[:runtime.Stack(buf, true)])
}
