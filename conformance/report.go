package conformance

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
)

// Status is the outcome of a case.
type Status string

// The outcomes.
const (
	// Passed: the behaviour was shown.
	Passed Status = "passed"
	// Failed: it was not; Result.Reason says what was expected and what happened.
	Failed Status = "failed"
	// NotDeclared: the driver does not claim the behaviour, and refuses it as the
	// contract says.
	NotDeclared Status = "not declared"
	// NotRun: the harness lacks what the case needs, so nothing is known.
	NotRun Status = "not run"
)

// Result is the outcome of one case.
type Result struct {
	ID       string        `json:"id"`
	Title    string        `json:"title"`
	Clause   string        `json:"clause"`
	Status   Status        `json:"status"`
	Reason   string        `json:"reason,omitempty"`
	Duration time.Duration `json:"duration_ns"`
}

// Report is the outcome of a run of the suite against one deployment.
type Report struct {
	Name string `json:"name"`
	// Suite and Driver are the modules of the suite and of the driver, with their versions.
	Suite        string               `json:"suite"`
	Driver       string               `json:"driver"`
	Capabilities backend.Capabilities `json:"capabilities"`
	Budget       Budget               `json:"budget"`
	Started      time.Time            `json:"started"`
	Duration     time.Duration        `json:"duration_ns"`
	Full         bool                 `json:"full"`
	Results      []Result             `json:"results"`
}

// Count returns how many cases had an outcome.
func (r *Report) Count(s Status) int {
	n := 0
	for _, res := range r.Results {
		if res.Status == s {
			n++
		}
	}
	return n
}

// OK reports whether no case failed.
func (r *Report) OK() bool { return r.Count(Failed) == 0 }

// Summary returns the outcome and the versions in a line.
func (r *Report) Summary() string {
	return fmt.Sprintf("%s: %d passed, %d failed, %d not declared, %d not run, in %v (%s, %s)",
		r.Name, r.Count(Passed), r.Count(Failed), r.Count(NotDeclared), r.Count(NotRun), r.Duration.Round(100*time.Millisecond), r.Driver, r.Suite)
}

// JSON returns the report as indented JSON.
func (r *Report) JSON() ([]byte, error) { return json.MarshalIndent(r, "", "  ") }

// ReadReport reads what JSON has written.
func ReadReport(b []byte) (*Report, error) {
	r := new(Report)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("conformance report: %w", err)
	}
	return r, nil
}

// Markdown returns the report as a table, and the text of each failure.
func (r *Report) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Conformance of %s\n\n%s\n\n", r.Name, r.Summary())
	b.WriteString("| case | what it shows | outcome | time |\n|---|---|---|---|\n")
	for _, res := range r.Results {
		outcome := string(res.Status)
		if res.Status == NotRun || res.Status == NotDeclared {
			outcome += ": " + res.Reason
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %v |\n", res.ID, cell(res.Title), cell(outcome), res.Duration.Round(time.Millisecond))
	}
	for _, res := range r.Results {
		if res.Status == Failed {
			fmt.Fprintf(&b, "\n## %s\n\nContract: %s\n\n```\n%s\n```\n", res.ID, res.Clause, res.Reason)
		}
	}
	return b.String()
}

// Matrix returns a table of all cases against all reports.
func Matrix(reports ...*Report) string {
	var b strings.Builder
	b.WriteString("| case | what it shows |")
	for _, r := range reports {
		b.WriteString(" " + cell(r.Name) + " |")
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(reports)) + "\n")
	marks := map[Status]string{Passed: "yes", Failed: "**FAILS**", NotDeclared: "–", NotRun: "not run", "": "not in this run"}
	for _, c := range Cases() {
		fmt.Fprintf(&b, "| %s | %s |", c.ID, cell(c.Title))
		for _, r := range reports {
			var s Status
			for _, res := range r.Results {
				if res.ID == c.ID {
					s = res.Status
				}
			}
			b.WriteString(" " + marks[s] + " |")
		}
		b.WriteString("\n")
	}
	b.WriteString("\nyes: shown; –: the driver does not declare it, and refuses it by name; not run: this deployment lacked what the case needs.\n")
	return b.String()
}

func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ").Replace(s)
}
