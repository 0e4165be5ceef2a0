package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/template"
	"unicode/utf8"

	"github.com/interlock-go/lock/cmd/lockbench/measure"
)

// Comparison has the results of one service. With a delay the ratios count round trips;
// without a delay they are the cost compared with a round trip of the service.
type Comparison struct {
	Service       string
	Delayed, Near *measure.Report
	Growth        *measure.Report // scenarios of growth, without a delay
}

// growth returns the tables of the scenarios of growth, of at most six columns: failures behind dead waiters are remarks.
func (c Comparison) growth() []*measure.Growth {
	all := c.Growth.Growth()
	for _, g := range all {
		if g.Kind == measure.Dead {
			g.Figures = slices.DeleteFunc(slices.Clone(g.Figures), func(figure string) bool { return figure == "failures" })
		}
	}
	return all
}

// fold breaks a paragraph into lines of at most 120 characters.
func fold(text string) string {
	var b strings.Builder
	length := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case length+1+n > 120:
			b.WriteByte('\n')
			length = 0
		default:
			b.WriteByte(' ')
			length++
		}
		b.WriteString(word)
		length += n
	}
	return b.String()
}

// row is the row of a target.
type row struct{ Target, Cells string }

// column is a figure of one scenario of a report.
type column struct {
	head string
	cell func(delayed, near summaries) float64
}

// parts are the tables of a service: narrow enough to be read.
var parts = [][]column{
	{
		{"uncontended, RTT", func(d, _ summaries) float64 { return d.of("uncontended").Ratio }},
		{"hand-off p50, RTT (16)", func(d, _ summaries) float64 { return d.of("contended 16").Ratio }},
		{"p50, RTT (64)", func(d, _ summaries) float64 { return d.of("contended 64").Ratio }},
		{"p99, RTT (16)", func(d, _ summaries) float64 { return d.of("contended 16").Ratio99 }},
		{"p99, RTT (64)", func(d, _ summaries) float64 { return d.of("contended 64").Ratio99 }},
	},
	{
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

// part is a table with the targets that have a figure in it.
type part struct {
	Head, Rule string
	Rows       []row
}

func (c Comparison) parts() []part {
	delayed, near := byTarget(c.Delayed), byTarget(c.Near)
	var out []part
	for _, columns := range parts {
		var heads []string
		for _, col := range columns {
			heads = append(heads, col.head)
		}
		p := part{Head: strings.Join(heads, " | "), Rule: strings.Repeat("---|", len(heads))}
		for _, t := range c.Near.Targets {
			var cells []string
			measured := false
			for _, col := range columns {
				v := col.cell(delayed[t.Name], near[t.Name])
				measured = measured || !math.IsNaN(v)
				cells = append(cells, cell(v))
			}
			if measured {
				p.Rows = append(p.Rows, row{t.Name, strings.Join(cells, " | ")})
			}
		}
		out = append(out, p)
	}
	return out
}

// remarks returns the violations and errors of the runs.
func (c Comparison) remarks() []string {
	var out []string
	for _, r := range []struct {
		*measure.Report
		how string
	}{{c.Delayed, "with the delay"}, {c.Near, "without"}} {
		for _, v := range r.Violations() {
			out = append(out, v+" ("+r.how+")")
		}
		for _, s := range r.Summaries() {
			if s.Errors > 0 {
				out = append(out, fmt.Sprintf("%s, %s, %s: errors: %d, the first: %s", s.Target, s.Scenario.Name(), r.how, s.Errors, s.FirstErr))
			}
		}
	}
	out = append(out, c.Growth.Violations()...)
	for _, g := range c.Growth.Growth() {
		for _, row := range g.Rows {
			if row.FirstErr != "" {
				out = append(out, fmt.Sprintf("%s, %s %d: the first error: %s", row.Target, g.Kind, row.N, row.FirstErr))
			}
		}
	}
	return out
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

func cell(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

var document = template.Must(template.New("performance").Funcs(template.FuncMap{"fold": fold}).Parse(`<!-- Written by make performance. Do not edit. -->
# Performance

For engineers who compare backends and libraries: this library and its peers in one run, on the same servers.

All figures are ratios, because absolute times depend on the machine.

- **RTT** is the round trip of the service with a delay of {{.Delay}} in each direction. Such figures count sequential
  round trips.
- **× raw** is the round trip without a delay. Such figures are the cost.
- (16) and (64) are workers of 4 independent clients on one lock, hold {{.Hold}}, pause {{.Think}}.
- A hand-off is the time from one worker's call of Unlock to the return of Lock in another worker.
- Fairness is Jain's index over the workers. "Same holder" is the share of acquisitions by the last holder: a high share
  means a high throughput and few hand-offs.
- Operations are those of the server for each acquisition, "–" if they were not counted; in PostgreSQL they are the
  transactions that write.
- "Two writes" are two writes of one row or key without a lock: the service's share of the cost. PostgreSQL, MySQL and
  MariaDB wait for the disk here, the others do not.
- With local hand-off (an option) the waiters of a client pass a grant on, at most 15 times and while it is younger than
  10 ms: see [ADR 0018](adr/0018-local-hand-off.md).
- The peers have no fencing token.

Measured with {{.Machine}}.
Each figure is the median of {{.Rounds}} rounds of {{.For}}, in which all targets took turns.

![{{.Alt}}](images/many-waiters.svg)
{{range .Services}}
## {{.Service}}

{{.About}}

{{range $i, $part := .Parts}}{{if $i}}
{{end}}| | {{.Head}} |
|---|{{.Rule}}
{{range .Rows}}| {{.Target}} | {{.Cells}} |
{{end}}{{end}}{{range .Growth}}
{{fold (print .Kind ": " .About ".")}}
{{$g := .}}
| | {{.Unit}} |{{range .Figures}} {{.}} |{{end}}
|---|---|{{range .Figures}}---|{{end}}
{{range .Rows}}{{$row := .}}| {{.Target}} | {{.N}} |{{range $g.Figures}} {{$row.Cell .}} |{{end}}
{{end}}{{end}}{{if .Remarks}}
{{range .Remarks}}{{fold (print "- " .)}}
{{end}}{{end}}{{end}}
## Measure it yourself

    make performance                                                   # all of this, on your machine
    lockbench bench --url redis://... --url etcd://... --delay 2ms       # your own servers, no peers

The tables of waiters and dead waiters are measured once, without a delay. A cycle is a Lock and an Unlock, without hold
and pause, while all other workers wait. In parentheses is the multiple of the figure of the least number: costs that
do not grow have 1. The other costs that must not grow, each with a pause of a minute or more:

    lockbench bench --url redis://localhost:6379/15 --scenario idle-processes,names,outage --report-html growth.html

Memory and files have no service to compare with. Their cost with 2,000 waiters is in [memory](backends/memory.md#cost)
and [files](backends/file.md#cost).

See also [choosing](choosing.md): speed is not the first criterion.
`))

// manyWaiters is the alternative text of the picture that hack/pictures draws from the tables of waiters.
const manyWaiters = `Bars for each service: the cycles a second with 2,000 waiters over those with 16, of this library and
of its peers. The figures are those of the tables of waiters below.`

// Document writes comparisons as docs/performance.md.
func Document(w io.Writer, all []Comparison) error {
	if len(all) == 0 {
		return fmt.Errorf("there are no measurements")
	}
	type service struct {
		Service, About string
		Parts          []part
		Growth         []*measure.Growth
		Remarks        []string
	}
	first := all[0]
	i := slices.IndexFunc(first.Near.Scenarios, func(s measure.Scenario) bool { return s.Kind == measure.Contended })
	if i < 0 {
		return fmt.Errorf("no contended scenario was measured")
	}
	scen, m := first.Near.Scenarios[i], first.Near.Machine
	data := map[string]any{
		"Alt":   manyWaiters,
		"Delay": first.Delayed.Delay, "Rounds": first.Near.Rounds, "For": scen.For, "Hold": scen.Hold, "Think": scen.Think,
		"Machine": strings.TrimSuffix(fmt.Sprintf("%d cores, %s, %s/%s, %s, on %s", m.Cores, m.CPU, m.OS, m.Arch, m.Go, first.Near.Started.Format("2006-01-02")), ", "),
	}
	var services []service
	for _, c := range all {
		about := c.Service
		for _, t := range c.Near.Targets {
			if t.Version != "" {
				about = t.Version
				break
			}
		}
		raw := c.Near.Summaries()[0].Raw
		services = append(services, service{
			c.Service, fmt.Sprintf("%s on the same machine, raw round trip %s.", about, measure.Short(raw)), c.parts(),
			c.growth(), c.remarks(),
		})
	}
	data["Services"] = services
	return document.Execute(w, data)
}
