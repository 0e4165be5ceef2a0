package main

import (
	"slices"
	"testing"
)

const document = `# Title

| declared | redis-7 | redis-8 |
|---|---|---|
| order | FIFO | FIFO |

| case | what it shows | redis-7 | redis-8 |
|---|---|---|---|
| a/1 | one | yes | yes |
| a/2 | two | yes | not run |
`

func TestCompare(t *testing.T) {
	const same = "| declared | redis-8 |\n|---|---|\n| order | FIFO |\n\n| case | what it shows | redis-8 |\n|---|---|---|\n| a/1 | one | yes |\n| a/2 | two | not run |\n"
	for _, tt := range []struct {
		name, run string
		wrong     []string
	}{
		{"same", same, nil},
		{"another outcome and a lost case", "| declared | redis-8 |\n|---|---|\n| order | FIFO |\n\n| case | what it shows | redis-8 |\n|---|---|---|\n| a/1 | one | **FAILS** |\n", []string{
			`redis-8, a/1: the document has "yes", the run "**FAILS**"`,
			`redis-8, a/2: the document has "not run", the run ""`,
			`what it shows, a/2: the document has "two", the run ""`,
		}},
		{"a new column", "| declared | valkey-9 |\n|---|---|\n| order | FIFO |\n", []string{`valkey-9, order: the document has "", the run "FIFO"`}},
	} {
		wrong, missing := compare(document, tt.run)
		if !slices.Equal(wrong, tt.wrong) {
			t.Errorf("%s: wrong: got %q, want %q", tt.name, wrong, tt.wrong)
		}
		if !slices.Contains(missing, "redis-7") {
			t.Errorf("%s: missing: got %q, want redis-7 among them", tt.name, missing)
		}
	}
}
