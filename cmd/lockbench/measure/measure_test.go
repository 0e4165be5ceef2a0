package measure_test

import (
	"bytes"
	"html"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/cmd/lockbench/measure"
)

func scenario(t *testing.T, kind measure.Kind, workers int) measure.Scenario {
	t.Helper()
	s, err := measure.New(kind, workers, time.Millisecond, 5*time.Millisecond, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run measures in a synctest bubble, in which an operation takes exactly its time.
func run(t *testing.T, rounds int, scenarios []measure.Scenario, targets ...measure.Target) (r *measure.Report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var err error
		r, err = measure.Run(t.Context(), measure.Plan{Targets: targets, Scenarios: scenarios, Rounds: rounds})
		if err != nil {
			t.Fatal(err)
		}
	})
	return r
}

// near allows for the three digits of a histogram.
func near(t *testing.T, name string, got, want float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > want*0.002 {
		t.Errorf("%s: got %v, want %v", name, got, want)
	}
}

func TestFigures(t *testing.T) {
	const ms = time.Millisecond
	quick := &service{ping: ms, lock: ms, unlock: ms, handOff: ms}
	slow := &service{ping: 2 * ms, lock: 3 * ms, unlock: 2 * ms, handOff: 4 * ms}
	scenarios := []measure.Scenario{scenario(t, measure.Uncontended, 1), scenario(t, measure.Contended, 8), scenario(t, measure.Many, 4), scenario(t, measure.Idle, 8)}
	r := run(t, 3, scenarios, quick.target("quick"), slow.target("slow"))
	if bad := r.Violations(); len(bad) > 0 {
		t.Fatalf("a correct lock: %q", bad)
	}
	sums := r.Summaries()
	if len(sums) != 8 {
		t.Fatalf("%d summaries, want one per scenario and target", len(sums))
	}
	for i, want := range []struct {
		target             string
		ratio, perAcquired float64
	}{
		{"quick", 2, 2}, {"slow", 2.5, 2}, // Lock and Unlock, in pings
		{"quick", 1, 2}, {"slow", 2, 2}, // hand-off
		{"quick", 2, 2}, {"slow", 2.5, 2},
	} {
		s := sums[i]
		if s.Target != want.target {
			t.Fatalf("summary %d is of %q, want %q", i, s.Target, want.target)
		}
		near(t, s.Target+", "+s.Scenario.Name()+", ratio", s.Ratio, want.ratio)
		if math.Abs(s.PerAcquired-want.perAcquired) > 0.1 { // the window cuts cycles in two
			t.Errorf("%s, %s: %v operations per acquisition, want %v", s.Target, s.Scenario.Name(), s.PerAcquired, want.perAcquired)
		}
		if s.Jain < 0.99 || s.Errors != 0 || len(s.Rounds) != 3 {
			t.Errorf("%s, %s: fairness %v, %d errors, %d rounds", s.Target, s.Scenario.Name(), s.Jain, s.Errors, len(s.Rounds))
		}
	}
	if idle := sums[6]; idle.PerIdle != 0 || idle.PerSecond != 0 {
		t.Errorf("idle: %v operations per waiter and minute, %v acquisitions per second; want none", idle.PerIdle, idle.PerSecond)
	}
}

func TestBrokenLocks(t *testing.T) {
	const ms = time.Millisecond
	contended := []measure.Scenario{scenario(t, measure.Contended, 4)}
	for name, s := range map[string]*service{
		"two holders at once": {ping: ms, lock: ms, unlock: ms, handOff: ms, twoAtOnce: true},
		"token":               {ping: ms, lock: ms, unlock: ms, handOff: ms, sameToken: true},
	} {
		r := run(t, 1, contended, s.target("broken"))
		bad := strings.Join(r.Violations(), " ")
		if !strings.Contains(bad, name) || strings.Contains(bad, " 0 times "+name) {
			t.Errorf("a lock with fault %q: got violations %q", name, bad)
		}
	}
	r := run(t, 1, contended, (&service{ping: ms, lock: ms, unlock: ms, handOff: ms, refuses: true}).target("refuses"))
	if s := r.Summaries()[0]; s.Errors == 0 || s.FirstErr != errRefused.Error() {
		t.Errorf("a lock that fails: %d errors, the first %q", s.Errors, s.FirstErr)
	}
}

// A measurement begins when the queue is complete. It ends when the queue is empty, or
// when no worker proceeds.
func TestQueues(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		of    *service
		stuck bool
		most  time.Duration // for all of it
	}{
		"connections are made":        {of: &service{cold: 20 * ms, handOff: ms}, most: 5 * time.Second},
		"the last turns take long":    {of: &service{handOff: 600 * ms}, most: 2 * time.Minute},
		"waiters are forgotten":       {of: &service{handOff: ms, forgets: true}, stuck: true, most: 20 * time.Second},
		"and waits cannot be stopped": {of: &service{handOff: ms, forgets: true, uncancellable: true}, stuck: true, most: 25 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := c.of
				s.ping, s.lock, s.unlock, s.closed = ms, ms, ms, make(chan struct{})
				begun := time.Now()
				r, err := measure.Run(t.Context(), measure.Plan{Targets: []measure.Target{s.target("one")}, Scenarios: []measure.Scenario{scenario(t, measure.Contended, 64)}, Rounds: 1})
				if err != nil {
					t.Fatal(err)
				}
				sum := r.Summaries()[0]
				if c.stuck != (sum.Errors == 1 && strings.Contains(sum.FirstErr, "still waiting")) || !c.stuck && sum.Errors != 0 {
					t.Errorf("stuck: %v; got %d errors, the first %q", c.stuck, sum.Errors, sum.FirstErr)
				}
				if took := time.Since(begun); took > c.most {
					t.Errorf("took %v, want at most %v", took, c.most)
				}
				if !c.stuck {
					near(t, "p99", sum.Ratio99, float64(c.of.handOff/ms))
				}
			})
		})
	}
}

func TestReportIsReadBack(t *testing.T) {
	const ms = time.Millisecond
	scenarios := []measure.Scenario{scenario(t, measure.Contended, 4), scenario(t, measure.Idle, 4)}
	r := run(t, 2, scenarios, (&service{ping: ms, lock: ms, unlock: ms, handOff: ms}).target("one"))
	var first, second, table, again bytes.Buffer
	if err := r.Write(&first); err != nil {
		t.Fatal(err)
	}
	read, err := measure.Read(bytes.NewReader(first.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if err := read.Write(&second); err != nil {
		t.Fatal(err)
	}
	if first.String() != second.String() {
		t.Errorf("the report differs after reading and writing")
	}
	r.Table(&table)
	read.Table(&again)
	if table.String() != again.String() || !strings.Contains(table.String(), "HAND-OFF P50") {
		t.Errorf("tables differ or say nothing:\n%s\n%s", table.String(), again.String())
	}
	for name, text := range map[string]string{
		"no JSON": "x", "another format": `{"format":99}`, "no times": `{"format":1,"runs":[{}]}`, "bad times": `{"format":1,"runs":[{"raw":"AAAA"}]}`,
	} {
		if _, err := measure.Read(strings.NewReader(text)); err == nil || !strings.HasPrefix(err.Error(), "report: ") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// The page needs no network, whatever the names of the targets are.
func TestHTMLNeedsNoNetwork(t *testing.T) {
	const ms, name = time.Millisecond, `<script>"`
	s := &service{ping: ms, lock: ms, unlock: ms, handOff: ms}
	scenarios := []measure.Scenario{scenario(t, measure.Uncontended, 1), scenario(t, measure.Contended, 8), scenario(t, measure.Idle, 4)}
	r := run(t, 1, scenarios, s.target(name), (&service{ping: ms, lock: ms, unlock: ms, handOff: ms}).target("other"))
	r.Command = []string{"lockbench", "--url", "my cache's=redis://h"}
	var b bytes.Buffer
	if err := r.HTML(&b, measure.Compare(r, r)); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, bad := range []string{"<script", "<link", "<img", "src=", "href=", "@import", "url(", "NaN", "%!"} {
		if i := strings.Index(page, bad); i >= 0 {
			t.Errorf("the page has %q: %.80q", bad, page[i:])
		}
	}
	if n := strings.Count(page, "<svg") + strings.Count(page, `class="bars"`); n != 5+6+1 {
		t.Errorf("%d charts, want 5 for uncontended, 6 for contended and 1 for idle", n)
	}
	for _, want := range []string{"<h2>Contended 8</h2>", html.EscapeString(`lockbench --url 'my cache'\''s=redis://h'`), "<th>Hand-off p50</th>", `style="width:100%"`, " took the fewest round trips at the median of hand-off, "} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if !strings.Contains(page, "&lt;script&gt;") || !strings.Contains(page, "too few for a comparison") {
		t.Errorf("the page lacks a target or the comparison")
	}
}

func TestCompare(t *testing.T) {
	const ms = time.Millisecond
	contended := []measure.Scenario{scenario(t, measure.Contended, 4)}
	report := func(handOff time.Duration, rounds int) *measure.Report {
		return run(t, rounds, contended, (&service{ping: ms, lock: ms, unlock: ms, handOff: handOff}).target("one"))
	}
	before := report(2*ms, 5)
	for _, c := range []struct {
		name        string
		now         *measure.Report
		significant bool
		note        string
	}{
		{"slower", report(3*ms, 5), true, ""},
		{"the same", report(2*ms, 5), false, ""},
		{"too few rounds", report(3*ms, 2), false, "too few"},
		{"another scenario", run(t, 5, []measure.Scenario{scenario(t, measure.Contended, 5)}, (&service{ping: ms, handOff: ms}).target("one")), false, "not in the earlier"},
	} {
		got := measure.Compare(before, c.now)
		if len(got) != 1 || got[0].Significant != c.significant || !strings.Contains(got[0].Note, c.note) || (c.note == "") != (got[0].Note == "") {
			t.Errorf("%s: got %+v", c.name, got)
		}
	}
	delayed := report(2*ms, 5)
	delayed.Delay = ms
	if got := measure.Compare(before, delayed); got[0].Note == "" {
		t.Errorf("another delay: got %+v", got)
	}
}

func TestScenarioInput(t *testing.T) {
	for _, c := range []struct {
		kind    measure.Kind
		workers int
		hold, d time.Duration
		want    string
	}{
		{"nothing", 4, 0, time.Second, "one of uncontended, contended, hot, many, idle"},
		{measure.Contended, 1, 0, time.Second, "2 or more"},
		{measure.Many, 0, 0, time.Second, "1 to 10000"},
		{measure.Contended, 4, -1, time.Second, "no negative"},
		{measure.Contended, 4, 0, time.Millisecond, "10ms or more"},
	} {
		if _, err := measure.New(c.kind, c.workers, c.hold, 0, c.d); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v", c, err)
		}
	}
}
