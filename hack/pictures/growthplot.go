package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/interlock-go/lock/hack/pictures/draw"
)

// growthPlot describes a picture of docs/performance-growth.md.
type growthPlot struct {
	name, title, alt string
	head, note       string
	most             int    // of the scale; longer bars are cut
	unit             string // the head of the first column of the tables
	values           func(row map[string]string) []draw.Value
}

var growthPlots = []growthPlot{
	{
		name: "growth-waiters", title: "What waiters cost",
		alt: "Bars for each service: the cycles a second with 200, 2,000 and 10,000 waiters over those with 16. " +
			"The figures are those of the tables of waiters below.",
		head: "Cycles a second over those with 16 waiters", note: "By the number of waiters in 4 clients. One: waiters cost nothing.",
		most: 2, unit: waitersColumn,
		values: func(row map[string]string) []draw.Value { return multiple(row, waitersColumn) },
	},
	{
		name: "growth-processes", title: "What idle processes cost",
		alt: "Bars for each service: the cycles a second beside 400 idle clients over those without. " +
			"The figures are those of the tables of idle processes below.",
		head: "Cycles a second over those without idle clients", note: "400 other clients have waited once, a minute before. One: they cost nothing.",
		most: 2, unit: "idle clients",
		values: func(row map[string]string) []draw.Value { return multiple(row, "idle clients") },
	},
	{
		name: "growth-names", title: "What a name leaves",
		alt: "Bars for each service: what a name that was used once leaves, at first and after twice the " +
			"retention, in rows, keys or nodes. The figures are those of the tables of names below.",
		head: "What a name that was used once leaves", note: "In rows, keys or nodes, right after its use and after twice the retention.",
		most: 2, unit: "names",
		values: func(row map[string]string) []draw.Value {
			first, err := strconv.ParseFloat(row["kept for a name at first"], 64)
			left, err2 := strconv.ParseFloat(row["left of the names, %"], 64)
			if err != nil || err2 != nil {
				return nil
			}
			return []draw.Value{{Name: "at first", N: min(first, 2)}, {Name: "later", N: min(left/100, 2), Kind: draw.Good}}
		},
	},
}

// multiple returns the bar of a row, none if it is the first of its table.
func multiple(row map[string]string, unit string) []draw.Value {
	_, text, ok := strings.Cut(strings.TrimSuffix(row[cyclesColumn], ")"), "(× ")
	n, err := strconv.ParseFloat(text, 64)
	if !ok || err != nil {
		return nil
	}
	return []draw.Value{{Name: row[unit] + " " + unit, N: min(n, 2), Kind: draw.Good}}
}

func (p growthPlot) picture(path string) (draw.Picture, error) {
	groups, err := figures(path, p.groups)
	return draw.Picture{Name: p.name, Title: p.title, Alt: p.alt, Draw: func(c *draw.Canvas) {
		y := 16 + c.Text(16, 16, draw.Width-32, "start", "bold", p.head) + 2
		y += c.Text(16, y, draw.Width-32, "start", "faint", p.note) + 6
		draw.Plot(c, y, p.most, groups...)
	}}, err
}

// groups reads the rows of the tables whose first column is the plot's unit.
func (p growthPlot) groups(text string) ([]draw.Group, error) {
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
		case head[0] != p.unit || len(cells) != len(head):
			continue
		}
		byHead := map[string]string{}
		for i, cell := range cells {
			byHead[head[i]] = cell
		}
		values := p.values(byHead)
		switch {
		case len(values) == 0:
		case len(groups) > 0 && groups[len(groups)-1].Heading == service:
			last := &groups[len(groups)-1]
			last.Values = append(last.Values, values...)
		default:
			groups = append(groups, draw.Group{Heading: service, Values: values})
		}
	}
	if len(groups) < 5 {
		return nil, fmt.Errorf("want a table with the first column %q for at least five services, found %d", p.unit, len(groups))
	}
	return groups, nil
}
