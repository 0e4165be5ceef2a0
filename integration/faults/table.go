package faults

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Table has sums of the results of many runs, by service and fault.
type Table struct {
	services []string
	faults   []string
	cells    map[[2]string]*cell
}

type cell struct {
	runs, acquisitions, lost, stale               int
	exclusion, tokens, orphans, forgotten, others int
	away, left                                    time.Duration
}

// Expect adds a service to the order of the table.
func (t *Table) Expect(service string) { t.services = append(t.services, service) }

// Add counts a run. Services that were not expected, and faults, are in the order
// in which they came.
func (t *Table) Add(res *Result) {
	if t.cells == nil {
		t.cells = map[[2]string]*cell{}
	}
	if !slices.Contains(t.services, res.Service) {
		t.services = append(t.services, res.Service)
	}
	if !slices.Contains(t.faults, res.Fault) {
		t.faults = append(t.faults, res.Fault)
	}
	c := t.cells[[2]string{res.Service, res.Fault}]
	if c == nil {
		c = &cell{}
		t.cells[[2]string{res.Service, res.Fault}] = c
	}
	c.add(&cell{
		1, res.Acquisitions, res.Lost, res.Stale,
		res.Broken(Exclusion, Stolen, Model, Fence), res.Broken(Token), res.Broken(Orphan), res.Broken(Forgotten, Cut, Order), res.Broken(Stuck, Undecided, Invalid),
		res.Away, res.Left,
	})
}

func (c *cell) add(o *cell) {
	c.runs += o.runs
	c.acquisitions += o.acquisitions
	c.lost += o.lost
	c.stale += o.stale
	c.exclusion += o.exclusion
	c.tokens += o.tokens
	c.orphans += o.orphans
	c.forgotten += o.forgotten
	c.others += o.others
	c.away, c.left = max(c.away, o.away), max(c.left, o.left)
}

func (c *cell) row(name string) string {
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
	fields := []string{name}
	for _, n := range []int{c.runs, c.acquisitions, c.lost, c.stale, c.exclusion, c.tokens, c.orphans, c.forgotten, c.others} {
		fields = append(fields, fmt.Sprint(n))
	}
	return "| " + strings.Join(append(fields, seconds(c.away), seconds(c.left)), " | ") + " |\n"
}

const header = " | runs | acquisitions | leases lost | stale writes refused | violations of exclusion | token regressions | orphans past their bound | waiters forgotten or overtaken | other failures | longest unavailability | last key free after |\n|---|" +
	"--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n"

// Markdown writes a table of the services, and then one of the faults for each.
func (t *Table) Markdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString("## All faults together\n\n| backend" + header)
	for _, s := range t.services {
		sum := &cell{}
		for _, f := range t.faults {
			if c := t.cells[[2]string{s, f}]; c != nil && f != "none" {
				sum.add(c)
			}
		}
		b.WriteString(sum.row(s))
	}
	for _, s := range t.services {
		fmt.Fprintf(&b, "\n## %s\n\n| fault%s", s, header)
		for _, f := range t.faults {
			if c := t.cells[[2]string{s, f}]; c != nil {
				b.WriteString(c.row(f))
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
