package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is a line of go test -json; see go doc test2json.
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64 // seconds
	Output  string
}

const (
	slowest  = 10
	maxLines = 200 // printed of a failed test when its package ends
	endLines = 8   // and once more at the end
)

// leftOut is what tests print that leave something out of this tier; see integration/provision.LeaveOut.
var leftOut = regexp.MustCompile(`left out: (.+) \(LOCK_TEST_ALL=1 runs it\)`)

// skipReason is a line that testing prints: file:line: reason.
var skipReason = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)`)

// caseTime is what conformance.Run prints for a case. The elapsed time of its subtest includes waiting for other cases.
var caseTime = regexp.MustCompile(`\bpassed in (\S+)\n`)

type testKey struct{ pkg, test string }

// report collects the events of a run.
type report struct {
	w, full io.Writer
	now     func() time.Time
	begin   time.Time

	running  map[string]time.Time // packages, with when they began; zero if they wait for their turn
	output   map[testKey][]string // of tests that have not passed
	parents  map[testKey]bool     // tests with subtests
	finished []event              // tests that have passed or failed
	skips    map[string][]string  // reason to tests
	left     map[string]bool
	failed   []string // packages
	failures []string // what failed tests printed first
	passed   int
	broken   int // failed tests
	skipped  int
}

func newReport(w, full io.Writer, now func() time.Time) *report {
	return &report{
		w: w, full: full, now: now, begin: now(),
		running: map[string]time.Time{}, output: map[testKey][]string{}, parents: map[testKey]bool{},
		skips: map[string][]string{}, left: map[string]bool{},
	}
}

func (r *report) printf(format string, args ...any) {
	since := r.now().Sub(r.begin).Round(time.Second)
	fmt.Fprintf(r.w, "%7v  %s\n", since, fmt.Sprintf(format, args...))
}

func (r *report) add(e event) {
	key := testKey{e.Package, e.Test}
	if e.Output != "" {
		_, _ = io.WriteString(r.full, e.Output)
	}
	if at, started := r.running[e.Package]; started && at.IsZero() {
		r.running[e.Package] = r.now()
		r.printf("begin  %s", short(e.Package))
	}
	switch e.Action {
	case "build-output":
		_, _ = io.WriteString(r.w, e.Output)
	case "start":
		r.running[e.Package] = time.Time{}
	case "run":
		if parent, ok := parentOf(e.Test); ok {
			r.parents[testKey{e.Package, parent}] = true
		}
	case "output":
		r.output[key] = append(r.output[key], e.Output)
		if m := leftOut.FindStringSubmatch(e.Output); m != nil {
			r.left[m[1]] = true
		}
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(e)
		} else {
			r.endTest(key, e)
		}
	}
}

func parentOf(test string) (string, bool) {
	i := strings.LastIndexByte(test, '/')
	if i < 0 {
		return "", false
	}
	return test[:i], true
}

func (r *report) endTest(key testKey, e event) {
	switch e.Action {
	case "skip":
		r.skipped++
		r.noteSkip(key)
	case "fail":
		r.broken++
		r.finished = append(r.finished, e)
		return // the output is printed at the end of the package
	default:
		r.passed++
		if m := caseTime.FindStringSubmatch(strings.Join(r.output[key], "")); m != nil {
			if d, err := time.ParseDuration(m[1]); err == nil {
				e.Elapsed = d.Seconds()
			}
		}
		r.finished = append(r.finished, e)
	}
	delete(r.output, key)
}

// noteSkip keeps the reason of a skipped test.
func (r *report) noteSkip(key testKey) {
	reason := "no reason given"
	for _, line := range r.output[key] {
		if leftOut.MatchString(line) {
			return
		}
		if m := skipReason.FindStringSubmatch(line); m != nil {
			reason = m[1]
		}
	}
	r.skips[reason] = append(r.skips[reason], short(key.pkg)+" "+key.test)
}

func (r *report) endPackage(e event) {
	took := r.now().Sub(r.running[e.Package]).Seconds()
	delete(r.running, e.Package)
	if e.Action == "fail" {
		r.failed = append(r.failed, short(e.Package))
		r.printf("FAIL   %s  %.1fs", short(e.Package), took)
		r.printFailures(e.Package)
	} else if text := strings.Join(r.output[testKey{e.Package, ""}], ""); strings.Contains(text, "[no test files]") {
		r.printf("-      %s  no test files", short(e.Package))
	} else {
		r.printf("ok     %s  %.1fs", short(e.Package), took)
	}
	maps.DeleteFunc(r.output, func(k testKey, _ []string) bool { return k.pkg == e.Package })
}

// printFailures prints what the failed tests of a package printed, and what belongs to no test, such as a panic.
func (r *report) printFailures(pkg string) {
	var keys []testKey
	for k := range r.output {
		if k.pkg == pkg && !r.parents[k] {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b testKey) int { return cmp.Compare(a.test, b.test) })
	for _, k := range keys {
		lines := slices.DeleteFunc(r.output[k], func(l string) bool { return strings.HasPrefix(l, "=== ") })
		if len(lines) > 0 {
			r.failures = append(r.failures, fmt.Sprintf("%s %s:\n%s", short(pkg), k.test, strings.Join(lines[:min(endLines, len(lines))], "")))
		}
		if n := len(lines) - maxLines; n > 0 {
			lines = append(lines[:maxLines:maxLines], fmt.Sprintf("... and %d more lines\n", n))
		}
		_, _ = io.WriteString(r.w, strings.Join(lines, ""))
	}
}

// finish prints the summary.
func (r *report) finish() {
	for pkg := range r.running { // go test was interrupted
		r.failed = append(r.failed, short(pkg))
		r.printf("FAIL   %s  did not end", short(pkg))
	}
	leaves := slices.DeleteFunc(slices.Clone(r.finished), func(e event) bool { return r.parents[testKey{e.Package, e.Test}] })
	slices.SortStableFunc(leaves, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
	if len(leaves) > 0 {
		fmt.Fprintf(r.w, "\nslowest tests:\n")
	}
	for _, e := range leaves[:min(slowest, len(leaves))] {
		fmt.Fprintf(r.w, "%8.1fs  %s %s\n", e.Elapsed, short(e.Package), e.Test)
	}
	if len(r.skips) > 0 {
		fmt.Fprintf(r.w, "skipped:\n")
		for _, reason := range slices.Sorted(maps.Keys(r.skips)) {
			fmt.Fprintf(r.w, "%8d  %s (%s)\n", len(r.skips[reason]), reason, r.skips[reason][0])
		}
	}
	if len(r.left) > 0 {
		fmt.Fprintf(r.w, "not run here: %s (make test-all)\n", strings.Join(slices.Sorted(maps.Keys(r.left)), ", "))
	}
	for _, f := range r.failures[:min(slowest, len(r.failures))] {
		fmt.Fprintf(r.w, "failed: %s", f)
	}
	if len(r.failed) > 0 {
		fmt.Fprintf(r.w, "failed packages: %s\n", strings.Join(slices.Sorted(slices.Values(r.failed)), " "))
	}
	fmt.Fprintf(r.w, "%d packages failed, %v in all\n", len(r.failed), r.now().Sub(r.begin).Round(time.Second))
	if r.passed+r.broken+r.skipped > 0 { // no test, if benchmarks ran
		fmt.Fprintf(r.w, "%d passed, %d failed, %d skipped\n", r.passed, r.broken, r.skipped)
	}
}

func short(pkg string) string {
	if s, ok := strings.CutPrefix(pkg, "github.com/interlock-go/lock"); ok {
		return "." + s
	}
	return pkg
}
