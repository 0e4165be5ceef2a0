package measure

import (
	"fmt"
	"io"
	"text/tabwriter"

	"golang.org/x/perf/benchmath"
)

// Change compares a target with an earlier report in a scenario.
type Change struct {
	Target, Scenario string
	Old, New         float64 // medians of the rounds' p50, in round trips
	P                float64 // of the null hypothesis that both are the same
	Significant      bool
	Note             string // why the two cannot be compared
}

// minRounds is the number of rounds below which the test is never significant.
const minRounds = 4

// Compare tests for significant changes: it compares the rounds' medians, in round trips
// of their own run, by the Mann-Whitney U test at 5 %.
func Compare(old, now *Report) []Change {
	var out []Change
	earlier := map[[2]string]Summary{}
	for _, s := range old.Summaries() {
		earlier[[2]string{s.Target, s.Scenario.Name()}] = s
	}
	for _, s := range now.Summaries() {
		if s.Scenario.Figure() == "" {
			continue
		}
		c := Change{Target: s.Target, Scenario: s.Scenario.Name(), New: s.Ratio}
		o, ok := earlier[[2]string{s.Target, s.Scenario.Name()}]
		switch {
		case !ok:
			c.Note = "not in the earlier report"
		case old.Delay != now.Delay:
			c.Note = fmt.Sprintf("not comparable: measured with a delay of %v, now of %v", old.Delay, now.Delay)
		case o.Scenario != s.Scenario:
			c.Note = fmt.Sprintf("not comparable: was %s, for %v each", o.Scenario.About(), o.Scenario.For)
		case len(o.Rounds) < minRounds || len(s.Rounds) < minRounds:
			c.Note = fmt.Sprintf("%d and %d rounds: too few for a comparison, want %d", len(o.Rounds), len(s.Rounds), minRounds)
		}
		if ok {
			c.Old = o.Ratio
		}
		if c.Note == "" {
			// NewSample sorts its argument.
			a := benchmath.NewSample(append([]float64(nil), o.Rounds...), &benchmath.DefaultThresholds)
			b := benchmath.NewSample(append([]float64(nil), s.Rounds...), &benchmath.DefaultThresholds)
			cmp := benchmath.AssumeNothing.Compare(a, b)
			c.P, c.Significant = cmp.P, cmp.P < cmp.Alpha
		}
		out = append(out, c)
	}
	return out
}

// WriteChanges writes changes as a table.
func WriteChanges(w io.Writer, changes []Change) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TARGET\tSCENARIO\tOLD, RTT\tNEW, RTT\tCHANGE")
	for _, c := range changes {
		text := c.Note
		switch {
		case text != "":
		case !c.Significant:
			text = fmt.Sprintf("not significant (p=%.3f)", c.P)
		default:
			text = fmt.Sprintf("%+.1f %% (p=%.3f)", 100*(c.New/c.Old-1), c.P)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", c.Target, c.Scenario, Number(c.Old), Number(c.New), text)
	}
	_ = t.Flush()
}
