package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strings"
)

// table has a row for each declared property and each case, and a column for each server or set of servers.
type table struct {
	columns []string
	rows    []row
}

type row struct {
	name, what string // what is empty for a declared property
	cells      map[string]string
}

// parse reads the tables of a document, which have the same columns.
func parse(document string) table {
	var found table
	var header []string
	for line := range strings.Lines(document) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			header = nil
			continue
		}
		line = strings.ReplaceAll(line, `\|`, "/") // within a cell
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if header == nil {
			header = cells
			continue
		}
		if strings.HasPrefix(cells[0], "---") {
			continue
		}
		r := row{name: cells[0], cells: map[string]string{}}
		for i := 1; i < min(len(cells), len(header)); i++ {
			if header[i] == "what it shows" {
				r.what = cells[i]
				continue
			}
			r.cells[header[i]] = cells[i]
			if !slices.Contains(found.columns, header[i]) {
				found.columns = append(found.columns, header[i])
			}
		}
		found.rows = append(found.rows, r)
	}
	return found
}

// read reads what write has written.
func read(in io.Reader) (table, error) {
	lines, err := csv.NewReader(in).ReadAll()
	if err != nil {
		return table{}, err
	}
	if len(lines) == 0 || len(lines[0]) < 3 {
		return table{}, fmt.Errorf("no table")
	}
	found := table{columns: lines[0][2:]}
	for _, line := range lines[1:] {
		r := row{name: line[0], what: line[1], cells: map[string]string{}}
		for i, column := range found.columns {
			r.cells[column] = line[2+i]
		}
		found.rows = append(found.rows, r)
	}
	return found, nil
}

func (t table) write(out io.Writer) error {
	w := csv.NewWriter(out)
	lines := [][]string{append([]string{"case or declared property", "what it shows"}, t.columns...)}
	for _, r := range t.rows {
		line := []string{r.name, r.what}
		for _, column := range t.columns {
			line = append(line, r.cells[column])
		}
		lines = append(lines, line)
	}
	return w.WriteAll(lines)
}

// cell returns what a row of that name has in a column, or "".
func (t table) cell(name, column string) string {
	for _, r := range t.rows {
		if r.name == name {
			return r.cells[column]
		}
	}
	return ""
}

// count returns how many cases have that outcome in a column.
func (t table) count(column, outcome string) (n int) {
	for _, r := range t.rows {
		if r.what != "" && r.cells[column] == outcome {
			n++
		}
	}
	return n
}
