package main

import (
	"fmt"
	"slices"
)

// compare returns how the columns of the run differ from those of the committed table, and the columns of the
// committed table that the run has not.
func compare(was, is table) (wrong, missing []string) {
	names := map[string]bool{}
	var rows []row // of both
	for _, r := range slices.Concat(was.rows, is.rows) {
		if !names[r.name] {
			names[r.name] = true
			rows = append(rows, r)
		}
	}
	cases := slices.ContainsFunc(is.rows, func(r row) bool { return r.what != "" })
	what := func(t table, name string) string {
		for _, r := range t.rows {
			if r.name == name {
				return r.what
			}
		}
		return ""
	}
	for _, r := range rows {
		if old, now := what(was, r.name), what(is, r.name); cases && old != now {
			wrong = append(wrong, fmt.Sprintf("what it shows, %s: the table has %q, the run %q", r.name, old, now))
		}
		for _, column := range is.columns {
			if old, now := was.cell(r.name, column), is.cell(r.name, column); old != now {
				wrong = append(wrong, fmt.Sprintf("%s, %s: the table has %q, the run %q", column, r.name, old, now))
			}
		}
	}
	for _, column := range was.columns {
		if !slices.Contains(is.columns, column) {
			missing = append(missing, column)
		}
	}
	return wrong, missing
}
