package bench

import (
	"bytes"
	"context"
	"io"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/interlock-go/lock/cmd/lockbench/measure"
	"github.com/interlock-go/lock/memlock"

	"github.com/interlock-go/lock"
)

// TestDocument writes the document of a run on memlock. It checks the layout, not the
// figures.
func TestDocument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		space := memlock.NewSpace()
		open := func(context.Context) (measure.Client, error) {
			c, err := lock.New(space.Backend())
			if err != nil {
				return nil, err
			}
			m := c.Mutex("x")
			return &peer{
				ping:  func(context.Context) error { time.Sleep(time.Millisecond); return nil },
				close: func() error { return c.Close(context.Background()) },
				lock: func(ctx context.Context, _ string) (func(context.Context) error, error) {
					time.Sleep(2 * time.Millisecond)
					l, err := m.Lock(ctx)
					if err != nil {
						return nil, err
					}
					return l.Unlock, nil
				},
			}, nil
		}
		targets := []measure.Target{{Name: "one", Version: "Memory 1", Open: open}, {Name: "other", Open: open}, {Name: twoWrites, Open: open, Alone: true}}
		var scenarios []measure.Scenario
		for _, n := range []int{1, 16, 64} {
			kind := measure.Contended
			if n == 1 {
				kind = measure.Uncontended
			}
			s, err := measure.New(kind, n, time.Millisecond, time.Millisecond, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			scenarios = append(scenarios, s)
		}
		r, err := measure.Run(t.Context(), measure.Plan{Targets: targets, Scenarios: scenarios, Rounds: 1})
		if err != nil {
			t.Fatal(err)
		}
		scenarios = nil
		for _, n := range []int{4, 64} {
			s, err := measure.NewGrowth(measure.Waiters, n, time.Second, -1, -1)
			if err != nil {
				t.Fatal(err)
			}
			scenarios = append(scenarios, s)
		}
		grown, err := measure.Run(t.Context(), measure.Plan{Targets: targets, Scenarios: scenarios, Rounds: 1})
		if err != nil {
			t.Fatal(err)
		}
		scen, err := measure.New(measure.Many, 4, 0, 0, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		targets[0].Processor = func(context.Context) (time.Duration, error) { return 0, nil }
		many, err := measure.Run(t.Context(), measure.Plan{Targets: targets, Scenarios: []measure.Scenario{scen}, Rounds: 1})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		all := []Comparison{{Service: "Memory", Many: many, Delayed: r, Near: r, Growth: grown}}
		if err := Document(&b, all); err != nil {
			t.Fatal(err)
		}
		doc := b.String()
		for _, want := range []string{"## Memory\n", "Memory 1 on the same machine, raw round trip 1ms. Measured with ", "\n| one | 2.00 | ", "\n| other | 2.00 | ", "\n| one | 64 | ", "(images/many-waiters.svg)", "\n| two writes | 2.00 | – | – | – | – |\n", "\n| | locks a second | p50, µs | server's processor, µs |", " (× 1.00) | 0.00 | ", "| 2.00 | – | – | – |\n"} {
			if !strings.Contains(doc, want) {
				t.Errorf("the document lacks %q:\n%s", want, doc)
			}
		}
		checkForm(t, doc)
		b.Reset()
		if err := GrowthDocument(&b, []Costs{{Service: "Memory", Reports: []*measure.Report{grown}}}); err != nil {
			t.Fatal(err)
		}
		doc = b.String()
		for _, want := range []string{"## Memory\n\nWaiters: N workers", "\n| waiters | cycles a second |", "\n| 64 | ", " (× "} {
			if !strings.Contains(doc, want) {
				t.Errorf("the page of growth lacks %q:\n%s", want, doc)
			}
		}
		checkForm(t, doc)
	})
	for _, err := range []error{Document(io.Discard, nil), GrowthDocument(io.Discard, nil), SharesDocument(io.Discard, nil)} {
		if err == nil {
			t.Error("a document without measurements: want an error")
		}
	}
}

// What held leases cost is two tables, since one has at most six columns.
func TestHeldLeases(t *testing.T) {
	scen, err := measure.NewGrowth(measure.Held, 20_000, time.Minute, -1, -1)
	if err != nil {
		t.Fatal(err)
	}
	m := &measure.Measurement{Target: "one", Scenario: scen.Name()}
	for _, name := range []string{
		"kB each", "goroutines each", "client, % of a core", "server, % of a core", "operations a second", "leases lost",
	} {
		m.Figures = append(m.Figures, measure.Figure{Name: name, Value: 1})
	}
	r := &measure.Report{
		Targets: []measure.TargetInfo{{Name: "one"}}, Scenarios: []measure.Scenario{scen}, Runs: []*measure.Measurement{m},
	}
	var b bytes.Buffer
	if err := GrowthDocument(&b, []Costs{{Service: "Memory", Reports: []*measure.Report{r}}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\n| leases | kB each | goroutines each | leases lost |\n",
		"\nHeld: the same leases, all together.\n",
		"\n| leases | client, % of a core | server, % of a core | operations a second |\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, b.String())
		}
	}
	checkForm(t, b.String())
}

func TestSharesDocument(t *testing.T) {
	var b bytes.Buffer
	if err := SharesDocument(&b, []Shares{
		{Name: "one", Alone: 2, Readers: 1.25, Writers: 1.5, Permits: 1.75, InUse: 0.9, Jain: 1, Writer: 0.5},
		{Name: "recipe", Alone: 3, Readers: 12, Writers: math.NaN(), Permits: math.NaN(), InUse: math.NaN(), Jain: math.NaN(), Writer: math.NaN()},
	}); err != nil {
		t.Fatal(err)
	}
	doc := b.String()
	for _, want := range []string{"\n| one | 2.00 | 1.25 | 1.50 | 1.75 |\n", "\n| recipe | 3.00 | 12.0 | – | – |\n", "\n| one | 0.90 | 1.00 | 0.50 |\n"} {
		if !strings.Contains(doc, want) {
			t.Errorf("the page lacks %q:\n%s", want, doc)
		}
	}
	if n := strings.Count(doc, "| recipe |"); n != 1 {
		t.Errorf("the page has %d rows of what was measured with a delay only, want 1", n)
	}
	checkForm(t, doc)
}

// checkForm checks that no line is longer than 120 characters, and that the rows of each table have as many cells as its
// head, six at most.
func checkForm(t *testing.T, doc string) {
	t.Helper()
	cells := 0
	for l := range strings.Lines(doc) {
		if n := utf8.RuneCountInString(strings.TrimSpace(l)); n > 120 {
			t.Errorf("a line of %d characters: %s", n, l)
		}
		if !strings.HasPrefix(l, "|") {
			cells = 0 // another table
			continue
		}
		n := strings.Count(l, "|") - 1
		if cells == 0 {
			cells = n
		}
		if n != cells || n > 6 {
			t.Errorf("a row of %d cells in a table of %d: %s", n, cells, l)
		}
	}
}

// TestMerge: a page keeps the sections of the services that were not measured.
func TestMerge(t *testing.T) {
	const head, last = "# Page\n\nText.\n", "\n## Measure it yourself\n\nSo.\n"
	old := "# Old\n" + "\n## A\n\nold a\n" + "\n## B\n\nold b\n" + "\n## Gone\n\nold\n" + "\n## Measure it yourself\n\nOld.\n"
	got := merge(old, head+"\n## C\n\nnew c\n"+"\n## B\n\nnew b\n"+last, []string{"A", "B", "C"})
	if want := head + "\n## A\n\nold a\n" + "\n## B\n\nnew b\n" + "\n## C\n\nnew c\n" + last; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := merge("", head+last, []string{"A"}); got != head+last {
		t.Errorf("without a page before it: got\n%s", got)
	}
}
