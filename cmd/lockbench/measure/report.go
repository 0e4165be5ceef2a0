package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// format is the version of the JSON form of a Report.
const format = 1

// Report contains the measurements of a run, and what is needed to repeat it and to
// compare it with another.
type Report struct {
	Format    int            `json:"format"`
	Started   time.Time      `json:"started"`
	Version   string         `json:"version"`
	Command   []string       `json:"command,omitempty"` // without secrets
	Machine   Machine        `json:"machine"`
	Delay     time.Duration  `json:"delay_ns"` // injected, each way
	Targets   []TargetInfo   `json:"targets"`
	Scenarios []Scenario     `json:"scenarios"`
	Rounds    int            `json:"rounds"`
	Runs      []*Measurement `json:"runs"`
}

// TargetInfo describes a target.
type TargetInfo struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}

// Machine describes the machine of the run.
type Machine struct {
	OS    string `json:"os"`
	Arch  string `json:"arch"`
	Cores int    `json:"cores"`
	CPU   string `json:"cpu,omitempty"`
	Go    string `json:"go"`
}

// Plan describes a run.
type Plan struct {
	Targets   []Target
	Scenarios []Scenario
	Rounds    int
	// Progress, if not nil, is called before each measurement.
	Progress func(done, all int, name string)
}

// Run measures each scenario against all targets in turn, round by round. After an error
// it returns the report of what was measured before.
func Run(ctx context.Context, p Plan) (*Report, error) {
	r := &Report{
		Format: format, Started: time.Now().UTC().Truncate(time.Second), Version: version(), Machine: ThisMachine(),
		Scenarios: p.Scenarios, Rounds: p.Rounds,
	}
	for _, t := range p.Targets {
		r.Targets = append(r.Targets, TargetInfo{Name: t.Name, Version: t.Version})
	}
	all := 0
	_ = p.each(func(int, Scenario, Target) error { all++; return nil })
	return r, p.each(func(round int, s Scenario, t Target) error {
		if p.Progress != nil {
			p.Progress(len(r.Runs), all, fmt.Sprintf("%s, %s", t.Name, s.Name()))
		}
		m, err := Measure(ctx, t, s, round)
		if err == nil {
			r.Runs = append(r.Runs, m)
		}
		return err
	})
}

// each calls f for each measurement, in order, until it fails. Scenarios of growth are
// measured once.
func (p Plan) each(f func(round int, s Scenario, t Target) error) error {
	for round := range p.Rounds {
		for _, s := range p.Scenarios {
			for _, t := range p.Targets {
				if !s.of(t) || s.growth() && round > 0 {
					continue
				}
				if err := f(round, s, t); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Read reads a report that was written as JSON.
func Read(in io.Reader) (*Report, error) {
	var r Report
	d := json.NewDecoder(in)
	if err := d.Decode(&r); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	if r.Format != format {
		return nil, fmt.Errorf("report: format %d: want %d", r.Format, format)
	}
	for _, m := range r.Runs {
		if m == nil || m.Raw == nil || m.Cycle == nil || m.Wait == nil || m.HandOff == nil {
			return nil, fmt.Errorf("report: a measurement without times")
		}
	}
	return &r, nil
}

// Write writes the report as JSON.
func (r *Report) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// Violations describes overlapping holders and tokens that did not rise. It returns
// nothing for a correct lock.
func (r *Report) Violations() []string {
	var out []string
	for _, m := range r.Runs {
		if m.Overlaps > 0 || m.Regressions > 0 {
			out = append(out, fmt.Sprintf("%s, %s, round %d: %d times two holders at once, %d times a fencing token that did not rise",
				m.Target, m.Scenario, m.Round+1, m.Overlaps, m.Regressions))
		}
	}
	return out
}

func version() string {
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" {
		return b.Main.Version
	}
	return "unknown"
}

// ThisMachine describes the machine that the program runs on.
func ThisMachine() Machine {
	return Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(), CPU: cpuModel(), Go: runtime.Version()}
}

// runsOf returns the rounds of one target and scenario.
func (r *Report) runsOf(target, scenario string) []*Measurement {
	var out []*Measurement
	for _, m := range r.Runs {
		if m.Target == target && m.Scenario == scenario {
			out = append(out, m)
		}
	}
	return out
}

// firstLine returns the value of the first "key : value" line of a text.
func firstLine(content, key string) string {
	for line := range strings.Lines(content) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
