package measure

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
)

//go:embed report.html
var page string

var pageTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"short": Short, "number": Number, "sentence": sentence, "shell": shell,
}).Parse(page))

var safeArg = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// shell returns a command line as a reader would type it.
func shell(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		if quoted[i] = a; !safeArg.MatchString(a) {
			quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// section is a scenario in the HTML report.
type section struct {
	Scenario Scenario
	Rows     []Summary
	Finding  string
	Bars     []*barChart
	Charts   []template.HTML
}

// growthSection is a kind of growth in the HTML report.
type growthSection struct {
	*Growth
	Charts []template.HTML
}

// HTML writes the report as one page without scripts and references.
func (r *Report) HTML(w io.Writer, changes []Change) error {
	all := r.Summaries()
	data := struct {
		*Report
		Duration time.Duration
		Sections []section
		Growth   []growthSection
		Bad      []string
		Changes  []Change
	}{Report: r, Bad: r.Violations(), Changes: changes}
	for _, m := range r.Runs {
		data.Duration += m.Took
	}
	data.Duration = data.Duration.Round(time.Second)
	for _, g := range r.Growth() {
		charts, err := g.Charts()
		if err != nil {
			return err
		}
		data.Growth = append(data.Growth, growthSection{g, charts})
	}
	for _, s := range r.Scenarios {
		if s.growth() {
			continue
		}
		sec := section{Scenario: s}
		for _, sum := range all {
			if sum.Scenario == s {
				sec.Rows = append(sec.Rows, sum)
			}
		}
		sec.Finding = finding(s, sec.Rows)
		if err := sec.draw(); err != nil {
			return err
		}
		data.Sections = append(data.Sections, sec)
	}
	return pageTemplate.Execute(w, data)
}

// draw adds the charts of the rows.
func (s *section) draw() error {
	add := func(title, unit string, value func(Summary) float64) {
		if c := bars(title, unit, s.Rows, value); c != nil {
			s.Bars = append(s.Bars, c)
		}
	}
	if s.Scenario.Kind == Idle {
		add("Cost of a waiter for the server", "operations a minute", func(s Summary) float64 { return s.PerIdle })
		return nil
	}
	figure := sentence(s.Scenario.Figure())
	add(figure+", median", "round trips", func(s Summary) float64 { return s.Ratio })
	add(figure+", 99th percentile", "round trips", func(s Summary) float64 { return s.Ratio99 })
	add("Throughput", "acquisitions a second", func(s Summary) float64 { return s.PerSecond })
	if s.Scenario.Workers > 1 {
		add("Fairness", "Jain's index; 1 is even", func(s Summary) float64 { return s.Jain })
	}
	add("Server operations", "for each acquisition", func(s Summary) float64 { return s.PerAcquired })
	chart, err := distribution(figure, s.Rows)
	if err == nil && chart != "" {
		s.Charts = append(s.Charts, chart)
	}
	return err
}

// finding is a sentence about what a scenario has shown, or "" for a single target.
func finding(s Scenario, rows []Summary) string {
	known := slices.DeleteFunc(slices.Clone(rows), func(r Summary) bool { return math.IsNaN(r.Ratio) })
	if s.Kind == Idle || len(known) < 2 {
		return ""
	}
	slices.SortStableFunc(known, func(a, b Summary) int { return cmp.Compare(a.Ratio, b.Ratio) })
	least, most := known[0], known[len(known)-1]
	return fmt.Sprintf("%s took the fewest round trips at the median of %s, %s; %s took the most, %s.",
		least.Target, s.Figure(), Number(least.Ratio), most.Target, Number(most.Ratio))
}

// sentence returns text with a capital first letter.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
