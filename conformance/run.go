package conformance

import (
	"context"
	"fmt"
	"sync"
)

// TB is what Run needs of *testing.T. It keeps package testing out of programs
// that only call Check.
type TB[T any] interface {
	Helper()
	Context() context.Context
	Run(name string, f func(t T)) bool
	Parallel()
	Skip(args ...any)
	Error(args ...any)
	Fatal(args ...any)
	Log(args ...any)
}

// Run runs each case as a subtest of t, named by the harness and the case's id:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Harness{Name: "toy", Open: open})
//	}
//
// A case that is not declared or not run is a skipped subtest that says why. Run
// returns when all are over, and prints a summary to standard output, which "go test" shows in the folder of the test.
func Run[T TB[T]](t T, h Harness, opts ...Option) {
	t.Helper()
	ctx := t.Context()
	r, err := newRunner(ctx, h, opts)
	if err != nil {
		t.Fatal(err)
		return
	}
	// The subtests only wait for the runner: it starts when they all have said that
	// they were selected (go test -run), and has its own idea of what may run at the
	// same time.
	var (
		rep     *Report
		started []*Case
		results = map[string]chan Result{}
		once    sync.Once
	)
	begin := func() {
		go func() {
			rep = r.run(ctx, started, func(c *Case, res Result) { results[c.ID] <- res })
			close(results[""])
		}()
	}
	results[""] = make(chan Result)
	t.Run(r.h.Name, func(t T) {
		for _, c := range r.selected() {
			t.Run(c.ID, func(t T) {
				started = append(started, c)
				ch := make(chan Result, 1)
				results[c.ID] = ch
				t.Parallel() // goes on when all are selected
				once.Do(begin)
				res := <-ch
				switch res.Status {
				case Failed:
					t.Error(res.Reason)
				case NotDeclared, NotRun:
					t.Skip(string(res.Status) + ": " + res.Reason)
				default:
					t.Log("passed in", res.Duration)
				}
			})
		}
	})
	if len(started) == 0 {
		return
	}
	<-results[""]
	fmt.Println(rep.Summary()) // Log is silent when a test passes
	if r.o.report != nil {
		r.o.report(rep)
	}
}
