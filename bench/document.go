package bench

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/interlock-go/lock/cmd/lockbench/measure"
)

// Comparison has the results of one service.
type Comparison struct {
	Service string
	Many    *measure.Report // workers with a lock each, without a delay
	Delayed *measure.Report // with a delay in each direction: its ratios count round trips
	Near    *measure.Report // without a delay: its ratios are costs, in round trips of the service
	Growth  *measure.Report // scenarios of growth, without a delay
}

// column is a figure of one scenario, with the delay or without it.
type column struct {
	head   string
	figure func(delayed, near summaries) float64
}

// tables are the tables of a service, of at most six columns each.
var tables = [][]column{
	{
		{"uncontended, RTT", func(d, _ summaries) float64 { return d.of("uncontended").Ratio }},
		{"hand-off p50, RTT (16)", func(d, _ summaries) float64 { return d.of("contended 16").Ratio }},
		{"p50, RTT (64)", func(d, _ summaries) float64 { return d.of("contended 64").Ratio }},
		{"p99, RTT (16)", func(d, _ summaries) float64 { return d.of("contended 16").Ratio99 }},
		{"p99, RTT (64)", func(d, _ summaries) float64 { return d.of("contended 64").Ratio99 }},
	},
	{
		{"uncontended, µs", func(_, n summaries) float64 {
			s := n.of("uncontended")
			return s.Ratio * float64(s.Raw) / float64(time.Microsecond)
		}},
		{"uncontended, × raw", func(_, n summaries) float64 { return n.of("uncontended").Ratio }},
		{"hand-off p50, × raw (16)", func(_, n summaries) float64 { return n.of("contended 16").Ratio }},
		{"p50, × raw (64)", func(_, n summaries) float64 { return n.of("contended 64").Ratio }},
		{"p99, × raw (64)", func(_, n summaries) float64 { return n.of("contended 64").Ratio99 }},
	},
	{
		{"fairness (64)", func(_, n summaries) float64 { return n.of("contended 64").Jain }},
		{"same holder (64)", func(_, n summaries) float64 { return n.of("contended 64").Same }},
		{"operations (16)", func(_, n summaries) float64 { return n.of("contended 16").PerAcquired }},
		{"operations (64)", func(_, n summaries) float64 { return n.of("contended 64").PerAcquired }},
	},
}

// table has the targets that have a figure in it. Its fields have the parts of the lines after the first column.
type table struct {
	Head, Rule string
	Rows       []struct{ Target, Cells string }
}

func (c Comparison) tables() []table {
	delayed, near := byTarget(c.Delayed), byTarget(c.Near)
	var out []table
	for _, columns := range tables {
		var heads []string
		for _, col := range columns {
			heads = append(heads, col.head)
		}
		tab := table{Head: strings.Join(heads, " | "), Rule: strings.Repeat("---|", len(heads))}
		for _, t := range c.Near.Targets {
			var cells []string
			measured := false
			for _, col := range columns {
				v := col.figure(delayed[t.Name], near[t.Name])
				measured = measured || !math.IsNaN(v)
				cells = append(cells, formatFigure(v))
			}
			if measured {
				tab.Rows = append(tab.Rows, struct{ Target, Cells string }{t.Name, strings.Join(cells, " | ")})
			}
		}
		out = append(out, tab)
	}
	return out
}

// manyFigures are the columns of the first table of a service.
var manyFigures = []struct {
	head   string
	figure func(measure.Summary) float64
}{
	{"locks a second", func(s measure.Summary) float64 { return s.PerSecond }},
	{"p50, µs", func(s measure.Summary) float64 { return float64(s.P50) / float64(time.Microsecond) }},
	{"server's processor, µs", func(s measure.Summary) float64 { return s.PerServer }},
	{"client's processor, µs", func(s measure.Summary) float64 { return s.PerClient }},
	{"allocations", func(s measure.Summary) float64 { return s.PerAllocs }},
}

// many returns the table of workers with a lock each. In parentheses are the ratios to two writes.
func (c Comparison) many() table {
	var base *measure.Summary
	all := c.Many.Summaries()
	for i := range all {
		if all[i].Target == twoWrites {
			base = &all[i]
		}
	}
	var heads []string
	for _, f := range manyFigures {
		heads = append(heads, f.head)
	}
	tab := table{Head: strings.Join(heads, " | "), Rule: strings.Repeat("---|", len(heads))}
	for i := range all {
		var cells []string
		for _, f := range manyFigures {
			text := formatFigure(f.figure(all[i]))
			if base != nil && base != &all[i] {
				if ratio := f.figure(all[i]) / f.figure(*base); !math.IsNaN(ratio) {
					text += fmt.Sprintf(" (× %s)", formatFigure(ratio))
				}
			}
			cells = append(cells, text)
		}
		tab.Rows = append(tab.Rows, struct{ Target, Cells string }{all[i].Target, strings.Join(cells, " | ")})
	}
	return tab
}

// remarks returns the violations and errors of the runs.
func (c Comparison) remarks() []string {
	var out []string
	for _, r := range []struct {
		report *measure.Report
		how    string
	}{{c.Many, "with a lock each"}, {c.Delayed, "with the delay"}, {c.Near, "without"}} {
		for _, v := range r.report.Violations() {
			out = append(out, v+" ("+r.how+")")
		}
		for _, s := range r.report.Summaries() {
			if s.Errors > 0 {
				out = append(out, fmt.Sprintf("%s, %s, %s: errors: %d, the first: %s", s.Target, s.Scenario.Name(), r.how, s.Errors, s.FirstErr))
			}
		}
	}
	return append(out, growthRemarks(c.Growth)...)
}

// summaries has the summaries of one target by scenario.
type summaries map[string]measure.Summary

// of returns the summary of a scenario. If it was not measured, all its figures are NaN.
func (s summaries) of(scenario string) measure.Summary {
	if sum, ok := s[scenario]; ok {
		return sum
	}
	nan := math.NaN()
	return measure.Summary{Ratio: nan, Ratio99: nan, Jain: nan, Same: nan, PerAcquired: nan}
}

func byTarget(r *measure.Report) map[string]summaries {
	out := map[string]summaries{}
	for _, s := range r.Summaries() {
		if out[s.Target] == nil {
			out[s.Target] = summaries{}
		}
		out[s.Target][s.Scenario.Name()] = s
	}
	return out
}

// section is the part of the page about one service.
type section struct {
	Service, About string
	Tables         []table
	Growth         []*measure.Growth
	Remarks        []string
}

func (c Comparison) section() section {
	about := c.Service
	for _, t := range c.Near.Targets {
		if t.Version != "" {
			about = t.Version
			break
		}
	}
	if sums := c.Near.Summaries(); len(sums) > 0 {
		about = fmt.Sprintf("%s on the same machine, raw round trip %s", about, measure.Short(sums[0].Raw))
	}
	about += ". Measured with " + machine(c.Near.Machine, c.Near.Started)
	return section{c.Service, fold(about + "."), append([]table{c.many()}, c.tables()...), growthTables(c.Growth), c.remarks()}
}

// Document writes comparisons as docs/performance.md. What it says of the load is that of the first comparison. It
// returns an error if there is none, or if that has no contended scenario.
func Document(w io.Writer, all []Comparison) error {
	if len(all) == 0 {
		return errors.New("bench: no comparison was measured")
	}
	first := all[0]
	i := slices.IndexFunc(first.Near.Scenarios, func(s measure.Scenario) bool { return s.Kind == measure.Contended })
	if i < 0 {
		return errors.New("bench: no contended scenario was measured")
	}
	scen := first.Near.Scenarios[i]
	data := struct {
		Delay, For, Hold, Think time.Duration
		Rounds                  int
		Services                []section
	}{
		first.Delayed.Delay, scen.For, scen.Hold, scen.Think, first.Near.Rounds, nil,
	}
	for _, c := range all {
		data.Services = append(data.Services, c.section())
	}
	return page(w, "performance.md.tmpl", data)
}
