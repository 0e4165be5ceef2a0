package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// cells are those of the tables of a document: by column, then by the first cell of the row.
type cells map[string]map[string]string

func parse(document string) cells {
	found := cells{}
	var header []string
	for line := range strings.Lines(document) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			header = nil
			continue
		}
		line = strings.ReplaceAll(line, `\|`, "/") // within a cell
		row := strings.Split(strings.Trim(line, "|"), "|")
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		switch {
		case header == nil:
			header = row
		case strings.HasPrefix(row[0], "---"):
		default:
			for i := 1; i < min(len(row), len(header)); i++ {
				if found[header[i]] == nil {
					found[header[i]] = map[string]string{}
				}
				found[header[i]][row[0]] = row[i]
			}
		}
	}
	return found
}

// compare returns how the columns of the run differ from those of the committed document, and the columns of the
// document that the run has not.
func compare(committed, run string) (wrong, missing []string) {
	was, is := parse(committed), parse(run)
	for _, column := range slices.Sorted(maps.Keys(is)) {
		rows := maps.Clone(was[column])
		if rows == nil {
			rows = map[string]string{}
		}
		for row := range is[column] {
			if _, ok := rows[row]; !ok {
				rows[row] = "" // the document has no such row
			}
		}
		for _, row := range slices.Sorted(maps.Keys(rows)) {
			if rows[row] != is[column][row] {
				wrong = append(wrong, fmt.Sprintf("%s, %s: the document has %q, the run %q", column, row, rows[row], is[column][row]))
			}
		}
	}
	for _, column := range slices.Sorted(maps.Keys(was)) {
		if is[column] == nil {
			missing = append(missing, column)
		}
	}
	return wrong, missing
}
