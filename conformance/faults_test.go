package conformance_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/memlock"
)

// fault is a way for a backend to be broken, and the cases that must find it.
type fault struct {
	name string
	// build breaks a client. It is called for each client of the same service.
	build func(w *wrap, s *service)
	// must fail; may also fail, because the fault is one of timing or shows there too;
	// no other case fails.
	must, may []string
	// slows says that nearly everything takes longer with it, so that only what must fail is run.
	slows bool
	// plain leaves out the optional interfaces.
	plain   bool
	harness func(h *conformance.Harness, s *service)
}

// faults are all of them.
var faults = slices.Concat(faultsOfHolds, faultsOfManners, faultsOfBatches, faultsOfStrangers, faultsOfOverlaps, faultsOfShares, faultsOfCapacities)

// service is what the clients of one broken service share.
type service struct {
	space  *memlock.Space
	queue  queue
	tokens tokens
	open   func(w *wire, opts ...memlock.Option) backend.Backend
}

// faultEnv makes this test binary run the suite against one fault and print the
// report: in a process of its own, so that goroutines can be counted and a fault
// that hangs is left behind.
const faultEnv = "INTERLOCK_CONFORMANCE_FAULT"

func faultMain() {
	name := os.Getenv(faultEnv)
	if name == "" {
		return
	}
	i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
	opts := []conformance.Option{conformance.Parallel(32), conformance.CaseTimeout(20 * time.Second)}
	if only := os.Getenv(faultEnv + "_ONLY"); only != "" {
		opts = append(opts, conformance.Only(only))
	}
	rep, err := conformance.Check(context.Background(), faults[i].open(), opts...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	b, _ := rep.JSON()
	_, _ = os.Stdout.Write(b)
	os.Exit(0)
}

func (f fault) open() conformance.Harness {
	s := &service{space: memlock.NewSpace()}
	s.open = func(link *wire, opts ...memlock.Option) backend.Backend {
		w := &wrap{Backend: s.space.Backend(opts...), wire: link}
		f.build(w, s)
		switch {
		case f.plain:
			return plain{w}
		case w.together != nil:
			return together{w}
		case w.watch != nil:
			return watching{w}
		}
		return w
	}
	h := conformance.Harness{
		Name:  f.name,
		Slack: 2 * time.Second,
		Open:  func(context.Context) (backend.Backend, error) { return s.open(nil), nil },
		OpenPrefix: func(_ context.Context, prefix string) (backend.Backend, error) {
			return s.open(nil, memlock.WithPrefix(prefix)), nil
		},
	}
	if f.harness != nil {
		f.harness(&h, s)
	}
	return h
}

func (f fault) run(ctx context.Context, only string) (*conformance.Report, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), faultEnv+"="+f.name, faultEnv+"_ONLY="+only)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, errs.String())
	}
	return conformance.ReadReport(out.Bytes())
}

// failures are the failed cases of a report and why they failed.
func failures(rep *conformance.Report) map[string]string {
	reasons := map[string]string{}
	for _, res := range rep.Results {
		if res.Status == conformance.Failed {
			reasons[res.ID] = res.Reason
		}
	}
	return reasons
}

// TestWatching shows that a backend that notifies of each change passes the case of it.
func TestWatching(t *testing.T) {
	f := fault{build: func(w *wrap, _ *service) { w.watch = func(changed func()) { changed() } }}
	conformance.Run(t, f.open(), conformance.Only("^capabilities/00-changes$"), conformance.OnReport(func(r *conformance.Report) {
		if r.Count(conformance.Passed) != 1 {
			t.Errorf("want the case passed, got %+v", r.Results)
		}
	}))
}

// TestFaults shows that each broken backend fails the cases that name its fault,
// and no others, unless it makes all of them slow. In -short mode, and if LOCK_TEST_ALL is empty, only those
// cases are run.
func TestFaults(t *testing.T) {
	t.Parallel() // beside TestSlowService, which waits
	few := testing.Short() || os.Getenv("LOCK_TEST_ALL") == ""
	if few {
		t.Log("left out: all cases against each broken backend (LOCK_TEST_ALL=1 runs it)")
	}
	type outcome struct {
		rep *conformance.Report
		err error
	}
	outcomes := make([]chan outcome, len(faults))
	slots := make(chan struct{}, 8) // they wait more than they work
	for i, f := range faults {
		outcomes[i] = make(chan outcome, 1)
		only := ""
		if f.slows || few {
			only = "^(" + strings.Join(f.must, "|") + ")$"
		}
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			rep, err := f.run(t.Context(), only)
			outcomes[i] <- outcome{rep, err}
		}()
	}
	ended := make([]outcome, len(faults)) // all of them, so that what is run again is alone
	for i := range faults {
		ended[i] = <-outcomes[i]
	}
	for i, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			rep, err := ended[i].rep, ended[i].err
			if err != nil {
				t.Fatal(err)
			}
			t.Log(rep.Summary())
			reasons := failures(rep)
			missed := slices.DeleteFunc(slices.Clone(f.must), func(id string) bool { _, failed := reasons[id]; return failed })
			if len(missed) > 0 {
				// It may have come too late for the case to see it, as below.
				again, err := f.run(t.Context(), "^("+strings.Join(missed, "|")+")$")
				if err != nil {
					t.Fatal(err)
				}
				alone := failures(again)
				for _, id := range missed {
					if _, failed := alone[id]; !failed {
						t.Errorf("%s: want it to fail, it did not, nor alone", id)
					}
				}
			}
			for _, id := range slices.Concat(f.must, f.may) {
				if !slices.ContainsFunc(conformance.Cases(), func(c conformance.Case) bool { return c.ID == id }) {
					t.Errorf("%s: there is no such case", id)
				}
			}
			var others []string
			for id, reason := range reasons {
				if !slices.Contains(f.must, id) && !slices.Contains(f.may, id) {
					t.Logf("%s: want it to pass with this fault, it failed: %.1500s", id, reason)
					others = append(others, id)
				}
			}
			if len(others) == 0 {
				return
			}
			// Eight processes at a time, each with many cases at a time, may have been too much
			// for the machine. What the fault breaks fails by itself as well.
			rep, err = f.run(t.Context(), "^("+strings.Join(others, "|")+")$")
			if err != nil {
				t.Fatal(err)
			}
			for id, reason := range failures(rep) {
				t.Errorf("%s, alone: want it to pass with this fault, it failed: %.1500s", id, reason)
			}
		})
	}
}
