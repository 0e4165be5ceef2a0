package measure

import (
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Growth has the figures of one kind of growth, of all targets.
type Growth struct {
	Kind    Kind
	About   string
	Unit    string   // of N
	Figures []string // the names of the figures, in order
	Rows    []GrowthRow
}

// GrowthRow has the figures of one target and N.
type GrowthRow struct {
	Target   string
	N        int
	Values   map[string]float64 // by figure; unknown ones are missing
	Ratios   map[string]float64 // to the target's row of the least N, for costs that should be flat
	FirstErr string
}

// Growth returns the measurements of growth, by kind.
func (r *Report) Growth() []*Growth {
	var out []*Growth
	byKind := map[Kind]*Growth{}
	for _, s := range r.Scenarios {
		if !s.growth() {
			continue
		}
		g := byKind[s.Kind]
		if g == nil {
			g = &Growth{Kind: s.Kind, About: s.About(), Unit: growths[s.Kind].unit}
			byKind[s.Kind], out = g, append(out, g)
		}
		for _, t := range r.Targets {
			for _, m := range r.runsOf(t.Name, s.Name()) {
				g.add(s, m)
			}
		}
	}
	for _, g := range out {
		slices.SortStableFunc(g.Rows, func(a, b GrowthRow) int {
			at, bt := r.position(a.Target), r.position(b.Target)
			if at != bt {
				return at - bt
			}
			return a.N - b.N
		})
		g.compare()
	}
	return out
}

func (r *Report) position(target string) int {
	return slices.IndexFunc(r.Targets, func(t TargetInfo) bool { return t.Name == target })
}

func (g *Growth) add(s Scenario, m *Measurement) {
	row := GrowthRow{Target: m.Target, N: s.N, Values: map[string]float64{}, Ratios: map[string]float64{}, FirstErr: m.FirstErr}
	for _, f := range m.Figures {
		row.Values[f.Name] = f.Value
		if !slices.Contains(g.Figures, f.Name) {
			g.Figures = append(g.Figures, f.Name)
		}
	}
	g.Rows = append(g.Rows, row)
}

// compare sets the ratios. The rows are sorted by target and N.
func (g *Growth) compare() {
	var least GrowthRow
	for _, row := range g.Rows {
		if row.Target != least.Target {
			least = row
			continue
		}
		for _, f := range relative {
			if a, v := least.Values[f], row.Values[f]; a > 0 && v > 0 {
				row.Ratios[f] = v / a
			}
		}
	}
}

// Cell writes a figure, with its ratio if it has one, "-" if it is unknown.
func (row GrowthRow) Cell(figure string) string {
	v, ok := row.Values[figure]
	if !ok {
		return "-"
	}
	text := Number(v)
	if v == float64(int64(v)) {
		text = fmt.Sprint(int64(v))
	}
	if ratio, ok := row.Ratios[figure]; ok {
		text += fmt.Sprintf(" (× %s)", Number(ratio))
	}
	return text
}

func (g *Growth) table(w io.Writer) {
	fmt.Fprintf(w, "%s: %s\n", g.Kind, g.About)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "TARGET\t%s\t%s\t\n", strings.ToUpper(g.Unit), strings.ToUpper(strings.Join(g.Figures, "\t")))
	for _, row := range g.Rows {
		fmt.Fprintf(t, "%s\t%d\t", row.Target, row.N)
		for _, f := range g.Figures {
			fmt.Fprintf(t, "%s\t", row.Cell(f))
		}
		fmt.Fprintln(t)
	}
	_ = t.Flush() // as for other writes, there is no place to report an error
	for _, row := range g.Rows {
		if row.FirstErr != "" {
			fmt.Fprintf(w, "%s, %d: %s\n", row.Target, row.N, row.FirstErr)
		}
	}
	fmt.Fprintln(w)
}

// Charts draws each figure over N, with a line for each target.
func (g *Growth) Charts() ([]template.HTML, error) {
	var charts []template.HTML
	for _, f := range g.Figures {
		c, err := g.chart(f)
		if err != nil {
			return nil, err
		}
		if c != "" {
			charts = append(charts, c)
		}
	}
	return charts, nil
}
