package faults

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
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
	c := t.cells[[2]string{res.Service, res.Fault}]
	if c == nil {
		c = &cell{}
		t.put(res.Service, res.Fault, c)
	}
	exclusion, tokens, orphans := res.Broken(Exclusion, Stolen, Model, Fence), res.Broken(Token), res.Broken(Orphan)
	forgotten := res.Broken(Forgotten, Cut, Order, Starved)
	c.add(&cell{
		1, res.Acquisitions, res.Lost, res.Stale,
		exclusion, tokens, orphans, forgotten, len(res.Violations) - exclusion - tokens - orphans - forgotten,
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

// columns are those of the file, after the service and the fault. The last two are in seconds.
var columns = []string{
	"runs", "acquisitions", "leases lost", "stale writes refused", "violations of exclusion", "token regressions",
	"orphans past their bound", "waiters forgotten or overtaken", "other failures", "longest unavailability", "last key free after",
}

func (c *cell) counts() []*int {
	return []*int{&c.runs, &c.acquisitions, &c.lost, &c.stale, &c.exclusion, &c.tokens, &c.orphans, &c.forgotten, &c.others}
}

// WriteFile replaces the services of t in a file, which has a line for each service and fault, and keeps the others.
func (t *Table) WriteFile(name string) error {
	all, err := ReadTable(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, s := range t.services {
		all.replace(t, s)
	}
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	lines := [][]string{append([]string{"backend", "fault"}, columns...)}
	for _, s := range all.services {
		for _, f := range all.faults {
			c := all.cells[[2]string{s, f}]
			if c == nil {
				continue
			}
			line := []string{s, f}
			for _, n := range c.counts() {
				line = append(line, strconv.Itoa(*n))
			}
			lines = append(lines, append(line, fmt.Sprintf("%.2f", c.away.Seconds()), fmt.Sprintf("%.2f", c.left.Seconds())))
		}
	}
	if err := w.WriteAll(lines); err != nil {
		return err
	}
	return os.WriteFile(name, b.Bytes(), 0o644) //nolint:gosec // a document in the repository
}

// replace takes the cells of a service from another table, if that has any.
func (t *Table) replace(from *Table, service string) {
	has := func(c *Table) bool {
		return slices.ContainsFunc(c.faults, func(f string) bool { return c.cells[[2]string{service, f}] != nil })
	}
	if !has(from) {
		return
	}
	for _, f := range t.faults {
		delete(t.cells, [2]string{service, f})
	}
	for _, f := range from.faults {
		if c := from.cells[[2]string{service, f}]; c != nil {
			t.put(service, f, c)
		}
	}
}

func (t *Table) put(service, fault string, c *cell) {
	if t.cells == nil {
		t.cells = map[[2]string]*cell{}
	}
	if !slices.Contains(t.services, service) {
		t.services = append(t.services, service)
	}
	if !slices.Contains(t.faults, fault) {
		t.faults = append(t.faults, fault)
	}
	t.cells[[2]string{service, fault}] = c
}

// ReadTable reads what WriteFile has written.
func ReadTable(name string) (*Table, error) {
	t := &Table{}
	content, err := os.ReadFile(name)
	if err != nil {
		return t, err
	}
	lines, err := csv.NewReader(bytes.NewReader(content)).ReadAll()
	if err == nil && (len(lines) == 0 || len(lines[0]) != 2+len(columns)) {
		err = fmt.Errorf("want a first line of %d columns", 2+len(columns))
	}
	if err != nil {
		return t, fmt.Errorf("%s: %w", name, err)
	}
	for _, line := range lines[1:] {
		c := &cell{}
		counts := c.counts()
		for i, n := range counts {
			if *n, err = strconv.Atoi(line[2+i]); err != nil {
				return t, fmt.Errorf("%s: %w", name, err)
			}
		}
		for i, d := range []*time.Duration{&c.away, &c.left} {
			if *d, err = time.ParseDuration(line[2+len(counts)+i] + "s"); err != nil {
				return t, fmt.Errorf("%s: %w", name, err)
			}
		}
		t.put(line[0], line[1], c)
	}
	return t, nil
}

// Summary returns a table of the services under all faults together.
func (t *Table) Summary() string {
	var b strings.Builder
	b.WriteString("| backend | acquisitions | leases lost | violations of exclusion | other violations | longest unavailability |\n|---|--:|--:|--:|--:|--:|\n")
	for _, s := range t.services {
		sum := &cell{}
		for _, f := range t.faults {
			if c := t.cells[[2]string{s, f}]; c != nil && f != "none" {
				sum.add(c)
			}
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %.2f s |\n", s, sum.acquisitions, sum.lost, sum.exclusion,
			sum.tokens+sum.orphans+sum.forgotten+sum.others, sum.away.Seconds())
	}
	return b.String()
}
