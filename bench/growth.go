package bench

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/interlock-go/lock/cmd/lockbench/measure"
)

// Costs has the measurements of growth of this library with one service.
type Costs struct {
	Service string
	Reports []*measure.Report
}

// Tables returns the tables of the scenarios, of at most six columns.
func (c Costs) Tables() []*measure.Growth {
	var all []*measure.Growth
	for _, r := range c.Reports {
		all = append(all, growthTables(r)...)
	}
	return all
}

// Remarks returns the violations and the first error of each measurement.
func (c Costs) Remarks() (out []string) {
	for _, r := range c.Reports {
		out = append(out, growthRemarks(r)...)
	}
	return out
}

// growthTables returns the tables without the failures behind dead waiters, which are remarks. That of held leases is two:
// what each costs, and what all together cost.
func growthTables(r *measure.Report) (all []*measure.Growth) {
	for _, g := range r.Growth() {
		all = append(all, g)
		switch g.Kind {
		case measure.Dead:
			without(g, func(figure string) bool { return figure == "failures" })
		case measure.Held:
			together := *g
			together.About = "the same leases, all together"
			without(&together, func(figure string) bool { return !ofAllLeases(figure) })
			without(g, ofAllLeases)
			all = append(all, &together)
		}
	}
	return all
}

func without(g *measure.Growth, which func(figure string) bool) {
	g.Figures = slices.DeleteFunc(slices.Clone(g.Figures), which)
}

func ofAllLeases(figure string) bool {
	return strings.HasSuffix(figure, "of a core") || figure == "operations a second"
}

func growthRemarks(r *measure.Report) []string {
	out := r.Violations()
	for _, g := range r.Growth() {
		for _, row := range g.Rows {
			if row.FirstErr != "" {
				out = append(out, fmt.Sprintf("%s, %s %d: the first error: %s", row.Target, g.Kind, row.N, row.FirstErr))
			}
		}
	}
	return out
}

// GrowthDocument writes measurements as docs/performance-growth.md. It returns an error if there is none.
func GrowthDocument(w io.Writer, all []Costs) error {
	if len(all) == 0 {
		return errors.New("bench: no growth was measured")
	}
	first := all[0].Reports[0]
	return page(w, "performance-growth.md.tmpl", struct {
		Machine  string
		Services []Costs
	}{machine(first.Machine, first.Started), all})
}
