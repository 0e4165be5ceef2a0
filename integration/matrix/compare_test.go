package main

import (
	"os"
	"slices"
	"strings"
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
			`redis-8, a/1: the table has "yes", the run "**FAILS**"`,
			`what it shows, a/2: the table has "two", the run ""`,
			`redis-8, a/2: the table has "not run", the run ""`,
		}},
		{"a new column", "| declared | valkey-9 |\n|---|---|\n| order | FIFO |\n", []string{`valkey-9, order: the table has "", the run "FIFO"`}},
	} {
		wrong, missing := compare(parse(document), parse(tt.run))
		if !slices.Equal(wrong, tt.wrong) {
			t.Errorf("%s: wrong: got %q, want %q", tt.name, wrong, tt.wrong)
		}
		if !slices.Contains(missing, "redis-7") {
			t.Errorf("%s: missing: got %q, want redis-7 among them", tt.name, missing)
		}
	}
}

func TestTable(t *testing.T) {
	var b strings.Builder
	if err := parse(document).write(&b); err != nil {
		t.Fatal(err)
	}
	again, err := read(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	if wrong, missing := compare(parse(document), again); len(wrong)+len(missing) > 0 {
		t.Errorf("what was written and read: %q %q", wrong, missing)
	}
	for _, want := range []string{"| redis-8 | 1 | 0 | 1 | 0 | 0 |\n", "| redis-7 |  | FIFO |"} {
		if !strings.Contains(again.summary(), want) {
			t.Errorf("the summary has no line %q:\n%s", want, again.summary())
		}
	}
}

// The page is the summary of the table.
func TestPage(t *testing.T) {
	full, err := load("../../docs/matrix.csv")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/matrix.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != full.summary() {
		t.Error("docs/matrix.md is not the summary of docs/matrix.csv: make matrix writes both")
	}
}
