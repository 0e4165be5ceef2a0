package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/interlock-go/lock/hack/pictures/draw"
)

const (
	handOffColumn = "hand-off p50, RTT (16)"
	waitersColumn = "waiters"
	cyclesColumn  = "cycles a second"
	localHandOff  = "Interlock, local hand-off" // within a process; it is no round trip
)

// handOffPlot shows the hand-offs of docs/performance.md.
func handOffPlot(path string) (draw.Picture, error) {
	groups, err := figures(path, handOffs)
	if err != nil {
		return draw.Picture{}, err
	}
	return draw.Picture{
		Name:  "handoff-speed",
		Title: "How long a hand-off takes",
		Alt: "Bars for each service: the median time from Unlock to the return of the next Lock, in round trips, with 16 waiters and 2 ms each way, " +
			"of this library and of its peers. The figures are those of docs/performance.md.",
		Draw: func(c *draw.Canvas) {
			y := 16 + c.Text(16, 16, draw.Width-32, "start", "bold", "Hand-off in round trips of the service (median)") + 2
			y += c.Text(16, y, draw.Width-32, "start", "faint", "16 waiters in 4 clients, 2 ms each way. Shorter is better; one is the least with a service.") + 6
			draw.Plot(c, y, 6, groups...)
		},
	}, nil
}

// figures reads the values of a plot from a document.
func figures(path string, parse func(text string) ([]draw.Group, error)) ([]draw.Group, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	groups, err := parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return groups, nil
}

// handOffs reads the column of hand-offs of each table.
func handOffs(text string) ([]draw.Group, error) {
	var groups []draw.Group
	column := -1
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			groups = append(groups, draw.Group{Heading: heading})
		}
		cells, ok := row(line)
		switch {
		case !ok:
			column = -1
			continue
		case column < 0:
			column = slices.Index(cells, handOffColumn)
			continue
		}
		value, err := strconv.ParseFloat(cells[column], 64)
		if err != nil || cells[0] == localHandOff {
			continue // a line below the heading, or a row without hand-offs
		}
		kind := draw.Plain
		if cells[0] == "Interlock" {
			kind = draw.Good
		}
		last := &groups[len(groups)-1]
		last.Values = append(last.Values, draw.Value{Name: cells[0], N: value, Kind: kind})
	}
	var withValues []draw.Group
	for _, g := range groups {
		if len(g.Values) > 0 {
			withValues = append(withValues, g)
		}
	}
	if len(withValues) < 5 {
		return nil, fmt.Errorf("want a table with the column %q for at least five services, found %d", handOffColumn, len(withValues))
	}
	return withValues, nil
}

// waitersPlot shows what 2,000 waiters cost, by docs/performance.md.
func waitersPlot(path string) (draw.Picture, error) {
	groups, err := figures(path, manyWaiters)
	if err != nil {
		return draw.Picture{}, err
	}
	return draw.Picture{
		Name:  "many-waiters",
		Title: "What 2,000 waiters cost",
		Alt: "Bars for each service: the cycles a second with 2,000 waiters over those with 16, of this library and of its peers. " +
			"The figures are those of the tables of waiters below.",
		Draw: func(c *draw.Canvas) {
			y := 16 + c.Text(16, 16, draw.Width-32, "start", "bold", "Cycles a second with 2,000 waiters over those with 16") + 2
			y += c.Text(16, y, draw.Width-32, "start", "faint", "One: the number of waiters costs nothing. Zero: no lock was acquired.") + 6
			draw.Plot(c, y, 2, groups...)
		},
	}, nil
}

// manyWaiters reads the multiple in the last row of each target in the tables of waiters.
func manyWaiters(text string) ([]draw.Group, error) {
	var groups []draw.Group
	inTable := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			groups = append(groups, draw.Group{Heading: heading})
		}
		cells, ok := row(line)
		switch {
		case !ok:
			inTable = false
			continue
		case len(cells) > 2 && cells[1] == waitersColumn && cells[2] == cyclesColumn:
			inTable = true
			continue
		case !inTable || cells[1] != "2000":
			continue
		}
		_, multiple, ok := strings.Cut(strings.TrimSuffix(cells[2], ")"), "(× ")
		if !ok {
			multiple = cells[2] // a figure of 0 has no multiple
		}
		value, err := strconv.ParseFloat(multiple, 64)
		if err != nil {
			continue // not measured
		}
		kind := draw.Plain
		if cells[0] == "Interlock" {
			kind = draw.Good
		}
		last := &groups[len(groups)-1]
		last.Values = append(last.Values, draw.Value{Name: cells[0], N: min(value, 2), Kind: kind})
	}
	groups = slices.DeleteFunc(groups, func(g draw.Group) bool { return len(g.Values) == 0 })
	if len(groups) == 0 {
		return nil, fmt.Errorf("want a table with the columns %q and %q, found none with a row of 2000", waitersColumn, cyclesColumn)
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
