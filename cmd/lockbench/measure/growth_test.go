package measure_test

import (
	"bytes"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/cmd/lockbench/measure"
	"github.com/interlock-go/lock/conformance"
	_ "github.com/interlock-go/lock/filelock"
	_ "github.com/interlock-go/lock/memlock"
)

func TestMain(m *testing.M) {
	conformance.WorkerMain() // the processes of scenario dead
	os.Exit(m.Run())
}

func growth(t *testing.T, kind measure.Kind, n int) measure.Scenario {
	t.Helper()
	s, err := measure.NewGrowth(kind, n, 50*time.Millisecond, time.Second, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A queue that costs the same for each number of waiters has ratios of 1.
func TestGrowthOfWaiters(t *testing.T) {
	const ms = time.Millisecond
	s := &service{ping: ms, lock: ms, unlock: ms, handOff: ms}
	long, err := measure.NewGrowth(measure.Waiters, 200, time.Second, -1, -1)
	if err != nil {
		t.Fatal(err)
	}
	short := long
	short.N, short.Workers = 16, 16
	target := s.target("one")
	target.Written = target.Operations
	r := run(t, 3, []measure.Scenario{long, short}, target)
	g := r.Growth()
	if len(g) != 1 || len(g[0].Rows) != 2 || len(r.Summaries()) != 0 || len(r.Violations()) != 0 {
		t.Fatalf("%d kinds, %d summaries, violations %q: want one kind with two rows, each measured once", len(g), len(r.Summaries()), r.Violations())
	}
	least, most := g[0].Rows[0], g[0].Rows[1]
	if least.N != 16 || most.N != 200 {
		t.Fatalf("rows of %d and %d waiters: want them in order", least.N, most.N)
	}
	for _, f := range []string{"cycles a second", "operations a cycle", "bytes logged a cycle"} {
		if ratio := most.Ratios[f]; ratio < 0.9 || ratio > 1.1 {
			t.Errorf("%s: ratio %v, want 1", f, ratio)
		}
	}
	if n := most.Values["cycles a second"]; n < 400 || n > 1100 {
		t.Errorf("%v cycles a second, want one each 1 to 2 ms", n)
	}
	if most.Values["failures"] != 0 {
		t.Errorf("failures: %v", most.Values["failures"])
	}
}

// Each kind of growth is measured on the services that have what it needs.
func TestGrowthOnServices(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no file locks")
	}
	file := measure.Interlock("file", "file://"+t.TempDir())
	if err := file.Watch(t.Context(), file.URL); err != nil {
		t.Fatal(err)
	}
	names := growth(t, measure.Names, 20)
	names.TTL = 50 * time.Millisecond // the driver refuses it as a retention, and keeps the names
	held := growth(t, measure.Held, 5)
	held.TTL = 50 * time.Millisecond
	r, err := measure.Run(t.Context(), measure.Plan{
		Targets: []measure.Target{measure.Interlock("memory", "mem://growth"), file}, Rounds: 2,
		Scenarios: []measure.Scenario{
			growth(t, measure.Waiters, 4), growth(t, measure.IdleProcesses, 3), growth(t, measure.Dead, 2), names, growth(t, measure.Outage, 2), held,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, g := range r.Growth() {
		for _, row := range g.Rows {
			got[string(g.Kind)+" "+row.Target] = len(row.Values)
		}
	}
	for name, figures := range map[string]int{
		"waiters memory": 2, "waiters file": 2, "idle-processes memory": 2, "idle-processes file": 2, "dead file": 3, "names file": 4, "held memory": 4, "held file": 4,
	} {
		if got[name] != figures {
			t.Errorf("%s: %d figures, want %d: %v", name, got[name], figures, r.Growth())
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("measured without what it needs: %v", got)
	}
	dead := r.Growth()[2].Rows[0]
	if s := dead.Values["seconds, processes killed"]; s <= 0 || s > 10 || dead.Values["failures"] != 0 {
		t.Errorf("behind two processes that were killed: granted after %v s, want at once: %+v", s, dead)
	}
	for _, row := range r.Growth()[4].Rows {
		if lost, ok := row.Values["leases lost"]; !ok || lost != 0 || row.Values["kB each"] <= 0 {
			t.Errorf("held leases: %+v", row)
		}
	}
	checkGrowthReports(t, r)
}

func checkGrowthReports(t *testing.T, r *measure.Report) {
	t.Helper()
	var text, page, first bytes.Buffer
	r.Table(&text)
	for _, want := range []string{"waiters: N workers", "CYCLES A SECOND", "the retention cannot be set: "} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, text.String())
		}
	}
	if err := r.HTML(&page, measure.Compare(r, r)); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(page.String(), "<svg"); n != 2+2+3+4+4 {
		t.Errorf("%d charts, want one a figure", n)
	}
	if err := r.Write(&first); err != nil {
		t.Fatal(err)
	}
	read, err := measure.Read(&first)
	if err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	read.Table(&again)
	if text.String() != again.String() {
		t.Errorf("the table of a report that was read differs:\n%s\n%s", text.String(), again.String())
	}
}

// Waiters that are never granted and cannot be cancelled do not keep a measurement from
// its end.
func TestGrowthIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{lock: time.Millisecond, handOff: time.Millisecond, forgets: true, uncancellable: true, closed: make(chan struct{})}
		began := time.Now()
		_, err := measure.Run(t.Context(), measure.Plan{
			Targets: []measure.Target{s.target("one")}, Scenarios: []measure.Scenario{growth(t, measure.Waiters, 64)}, Rounds: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("took %v, want a minute at most", took)
		}
	})
}

func TestGrowthInput(t *testing.T) {
	for _, c := range []struct {
		kind measure.Kind
		n    int
		ttl  time.Duration
		want string
	}{
		{measure.Waiters, 1, -1, "2 to 20000"},
		{measure.Dead, 1000, -1, "1 to 200"},
		{measure.Outage, 10, time.Millisecond, "500ms or more"},
	} {
		if _, err := measure.NewGrowth(c.kind, c.n, time.Second, c.ttl, -1); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v", c, err)
		}
	}
}
