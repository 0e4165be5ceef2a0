package conformance

import (
	"regexp"
	"runtime"
	"time"

	"github.com/interlock-go/lock"
)

// Option changes how the suite runs.
type Option func(*options)

type options struct {
	only         *regexp.Regexp
	except       map[string]string
	full         bool
	requireHooks bool
	parallel     int
	log          func(format string, args ...any)
	report       func(*Report)
	clients      []lock.Option
	caseTimeout  time.Duration
}

// Only runs the cases whose id matches the expression.
func Only(expr string) Option {
	re := regexp.MustCompile(expr)
	return func(o *options) { o.only = re }
}

// Except does not run the case of an id and reports it as not run, for reason.
func Except(id, reason string) Option {
	return func(o *options) { o.except[id] = reason }
}

// Full runs the long tier: more rounds, longer sweeps, and the cases that run in it only.
func Full() Option { return func(o *options) { o.full = true } }

// RequireHooks makes a case fail that would not be run because the harness has no
// hook for it.
func RequireHooks() Option { return func(o *options) { o.requireHooks = true } }

// Parallel sets how many cases run at once: by default two for each processor, and 8 at most. With more
// of them a service on the same machine waits for processors, and does not answer in time. Cases that
// measure or disturb the whole service always run alone.
func Parallel(n int) Option { return func(o *options) { o.parallel = max(n, 1) } }

// CaseTimeout ends a case that has not ended by itself, and fails it; 2 minutes by
// default. Cases that run alone have twice that.
func CaseTimeout(d time.Duration) Option { return func(o *options) { o.caseTimeout = d } }

// Clients gives options to the clients that the cases make in this process, such as
// lock.WithLocalHandOff. What these guarantee is what is verified then. Those of
// other processes have what the URL of the harness's Worker says.
func Clients(opts ...lock.Option) Option {
	return func(o *options) { o.clients = append(o.clients, opts...) }
}

// Log receives what a case has to say while it runs.
func Log(f func(format string, args ...any)) Option { return func(o *options) { o.log = f } }

// OnReport receives the report when a Run is over.
func OnReport(f func(*Report)) Option { return func(o *options) { o.report = f } }

func newOptions(opts []Option) *options {
	o := &options{parallel: min(8, 2*runtime.GOMAXPROCS(0)), except: map[string]string{}, caseTimeout: 2 * time.Minute}
	for _, f := range opts {
		f(o)
	}
	return o
}
