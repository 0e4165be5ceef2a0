package measure

import (
	_ "embed"
	"html/template"
	"io"
	"time"
)

//go:embed report.html
var page string

var pageTemplate = template.Must(template.New("report").Funcs(template.FuncMap{"short": Short, "number": number}).Parse(page))

// section is a scenario in the HTML report.
type section struct {
	Scenario Scenario
	Rows     []Summary
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
		charts, err := sectionCharts(s, sec.Rows)
		if err != nil {
			return err
		}
		sec.Charts = charts
		data.Sections = append(data.Sections, sec)
	}
	return pageTemplate.Execute(w, data)
}

func sectionCharts(s Scenario, rows []Summary) ([]template.HTML, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	var charts []template.HTML
	var failed error
	add := func(c template.HTML, err error) {
		if err != nil && failed == nil {
			failed = err
		}
		if c != "" {
			charts = append(charts, c)
		}
	}
	if s.Kind == Idle {
		add(bars("cost of a waiter for the server", "operations a minute", rows, func(s Summary) float64 { return s.PerIdle }))
		return charts, failed
	}
	add(distribution(s.Figure(), rows))
	add(bars(s.Figure()+", median", "round trips", rows, func(s Summary) float64 { return s.Ratio }))
	add(bars(s.Figure()+", 99th percentile", "round trips", rows, func(s Summary) float64 { return s.Ratio99 }))
	add(bars("throughput", "acquisitions a second", rows, func(s Summary) float64 { return s.PerSecond }))
	if s.Workers > 1 {
		add(bars("fairness", "Jain's index, 1 is even", rows, func(s Summary) float64 { return s.Jain }))
	}
	add(bars("server operations", "per acquisition", rows, func(s Summary) float64 { return s.PerAcquired }))
	return charts, failed
}
