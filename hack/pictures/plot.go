package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/interlock-go/lock/hack/pictures/draw"
)

const (
	handOffColumn = "hand-off p50, RTT (16)"
	waitersColumn = "waiters"
	idleColumn    = "idle clients"
	cyclesColumn  = "cycles a second"
	localHandOff  = "Interlock, local hand-off" // within a process; it is no round trip
)

// plot describes a picture of the figures in the tables of a document.
type plot struct {
	name, title, alt string
	file             string // in docs
	head, note       string
	most             int                                      // of the scale
	cut              bool                                     // longer bars end there
	least            int                                      // services with bars that the document must have
	values           func(row map[string]string) []draw.Value // the bars of a row, whose cells are by column; none for other tables
}

var plots = []plot{
	{
		name: "handoff-speed", title: "How long a hand-off takes", file: "performance.md",
		alt: "Bars for each service: the median time from Unlock to the return of the next Lock, in round trips, with 16 waiters and 2 ms each way, " +
			"of this library and of its peers. The figures are those of docs/performance.md.",
		head: "Hand-off in round trips of the service (median)",
		note: "16 waiters in 4 clients, 2 ms each way. Shorter is better; one is the least with a service.",
		most: 6, least: 5,
		values: func(row map[string]string) []draw.Value {
			if row[""] == localHandOff {
				return nil
			}
			return compared(row, row[handOffColumn])
		},
	},
	{
		name: "many-waiters", title: "What 2,000 waiters cost", file: "performance.md",
		alt: "Bars for each service: the thousands of cycles a second with 2,000 waiters, of this library and of its peers. " +
			"The figures are those of the tables of waiters below.",
		head: "Thousands of cycles of Lock and Unlock a second, of one lock",
		note: "With 2,000 waiters in 4 clients, without a delay. Longer is better. Zero: no lock was acquired.",
		most: 8, cut: true, least: 1,
		values: func(row map[string]string) []draw.Value {
			if row[waitersColumn] != "2000" {
				return nil
			}
			cycles, _, _ := strings.Cut(row[cyclesColumn], " ")
			bars := compared(row, cycles)
			for i := range bars {
				bars[i].N /= 1000
			}
			return bars
		},
	},
	{
		name: "growth-waiters", title: "What waiters cost", file: "performance-growth.md",
		alt: "Bars for each service: the cycles a second with 200, 2,000 and 10,000 waiters over those with 16. " +
			"The figures are those of the tables of waiters below.",
		head: "Cycles a second over those with 16 waiters",
		note: "By the number of waiters in 4 clients. One: waiters cost nothing.",
		most: 2, cut: true, least: 5,
		values: func(row map[string]string) []draw.Value { return growth(row, waitersColumn) },
	},
	{
		name: "growth-processes", title: "What idle processes cost", file: "performance-growth.md",
		alt: "Bars for each service: the cycles a second beside 400 idle clients over those without. " +
			"The figures are those of the tables of idle processes below.",
		head: "Cycles a second over those without idle clients",
		note: "400 other clients have waited once, a minute before. One: they cost nothing.",
		most: 2, cut: true, least: 5,
		values: func(row map[string]string) []draw.Value { return growth(row, idleColumn) },
	},
	{
		name: "growth-names", title: "What a name leaves", file: "performance-growth.md",
		alt: "Bars for each service: what a name that was used once leaves, at first and after twice the " +
			"retention, in rows, keys or nodes. The figures are those of the tables of names below.",
		head: "What a name that was used once leaves",
		note: "In rows, keys or nodes, right after its use and after twice the retention.",
		most: 2, cut: true, least: 5,
		values: func(row map[string]string) []draw.Value {
			first, err := strconv.ParseFloat(row["kept for a name at first"], 64)
			left, err2 := strconv.ParseFloat(row["left of the names, %"], 64)
			if err != nil || err2 != nil {
				return nil
			}
			return []draw.Value{{Name: "at first", N: first}, {Name: "later", N: left / 100, Kind: draw.Good}}
		},
	},
}

// multiple returns over what a figure of cycles is, as text.
func multiple(row map[string]string) (string, bool) {
	_, n, ok := strings.Cut(strings.TrimSuffix(row[cyclesColumn], ")"), "(× ")
	return n, ok
}

// compared returns the bar of this library or of a peer, none for a text that is no figure.
func compared(row map[string]string, text string) []draw.Value {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil
	}
	kind := draw.Plain
	if row[""] == "Interlock" {
		kind = draw.Good
	}
	return []draw.Value{{Name: row[""], N: n, Kind: kind}}
}

// growth returns the bar of a row, none if it is the first of its table or the table has no column of the unit.
func growth(row map[string]string, unit string) []draw.Value {
	text, _ := multiple(row)
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || row[unit] == "" {
		return nil
	}
	return []draw.Value{{Name: row[unit] + " " + unit, N: n, Kind: draw.Good}}
}

func (p plot) picture(root string) (draw.Picture, error) {
	text, err := os.ReadFile(filepath.Join(root, "docs", p.file))
	if err != nil {
		return draw.Picture{}, err
	}
	groups, err := p.groups(string(text))
	return draw.Picture{Name: p.name, Title: p.title, Alt: p.alt, Draw: func(c *draw.Canvas) {
		y := 16 + c.Text(16, 16, draw.Width-32, "start", "bold", p.head) + 2
		y += c.Text(16, y, draw.Width-32, "start", "faint", p.note) + 6
		draw.Plot(c, y, p.most, groups...)
	}}, err
}

// groups reads the bars from the tables of a document, by the headings of its sections.
func (p plot) groups(text string) ([]draw.Group, error) {
	var (
		groups  []draw.Group
		service string
		head    []string
	)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			service = heading
		}
		cells, ok := row(line)
		switch {
		case !ok:
			head = nil
			continue
		case head == nil:
			head = cells
			continue
		case len(cells) != len(head):
			continue
		}
		byHead := map[string]string{}
		for i, cell := range cells {
			byHead[head[i]] = cell
		}
		for _, v := range p.values(byHead) {
			if len(groups) == 0 || groups[len(groups)-1].Heading != service {
				groups = append(groups, draw.Group{Heading: service})
			}
			if p.cut {
				v.N = min(v.N, float64(p.most))
			}
			last := &groups[len(groups)-1]
			last.Values = append(last.Values, v)
		}
	}
	if len(groups) < p.least {
		return nil, fmt.Errorf("docs/%s: %s: want tables with its figures of at least %d services, found %d", p.file, p.name, p.least, len(groups))
	}
	return groups, nil
}

// row returns the cells of a line of a table.
func row(line string) ([]string, bool) {
	if !strings.HasPrefix(line, "|") {
		return nil, false
	}
	cells := strings.Split(strings.Trim(line, "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells, true
}
