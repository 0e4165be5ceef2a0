package bench

import (
	"bytes"
	"context"
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
		targets := []measure.Target{{Name: "one", Version: "Memory 1", Open: open}, {Name: "other", Open: open}, {Name: "floor", Open: open, Alone: true}}
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
		var b bytes.Buffer
		all := []Comparison{{Service: "Memory", Delayed: r, Near: r, Growth: grown}}
		if err := Document(&b, all); err != nil {
			t.Fatal(err)
		}
		doc := b.String()
		for _, want := range []string{"## Memory\n", "Memory 1 on the same machine, raw round trip 1ms", "\n| one | 2.00 | ", "\n| other | 2.00 | ", "\n| one | 64 | ", "(images/many-waiters.svg)", "\n| floor | 2.00 | – | – | – | – |\n", "\n| floor | 2.00 | – | – | – |\n"} {
			if !strings.Contains(doc, want) {
				t.Errorf("the document lacks %q:\n%s", want, doc)
			}
		}
		lines := strings.Split(doc, "\n")
		cells := 0
		for _, l := range lines {
			if !strings.HasPrefix(l, "|") {
				cells = 0 // another table
			}
			if utf8.RuneCountInString(l) > 120 {
				t.Errorf("a line of %d characters: %s", utf8.RuneCountInString(l), l)
			}
			if n := strings.Count(l, "|"); strings.HasPrefix(l, "|") {
				if cells == 0 {
					cells = n
				}
				if n != cells {
					t.Errorf("a row of %d cells in a table of %d: %s", n, cells, l)
				}
			}
		}
	})
	if err := Document(&bytes.Buffer{}, nil); err == nil {
		t.Error("a document without measurements: want an error")
	}
}
