package main

import "slices"

// merge returns the table of a run, with the columns of the committed table that the run has not. A case that the run
// has not is no longer in the suite.
func merge(committed, run table) table {
	out := table{columns: slices.Clone(committed.columns)}
	for _, column := range run.columns {
		if !slices.Contains(out.columns, column) {
			out.columns = slices.Insert(out.columns, place(committed, out.columns, column, run.cell("scope", column)), column)
		}
	}
	for _, r := range run.rows {
		merged := row{r.name, r.what, map[string]string{}}
		for _, column := range out.columns {
			if slices.Contains(run.columns, column) {
				merged.cells[column] = r.cells[column]
			} else {
				merged.cells[column] = committed.cell(r.name, column)
			}
		}
		out.rows = append(out.rows, merged)
	}
	return out
}

// place returns where a column goes: by name, among those of its scope.
func place(committed table, columns []string, column, scope string) int {
	after := len(columns)
	for i, c := range columns {
		if committed.cell("scope", c) != scope {
			continue
		}
		if c > column {
			return i
		}
		after = i + 1
	}
	return after
}
