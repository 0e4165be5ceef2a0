package main

import (
	"slices"
	"testing"
)

func TestMerge(t *testing.T) {
	committed := parse(`| declared | mem | etcd | redis-7 |
|---|---|---|---|
| scope | process | network | network |

| case | what it shows | mem | etcd | redis-7 |
|---|---|---|---|---|
| a | one | passed | passed | failed |
| old | gone | passed | passed | passed |
`)
	run := parse(`| declared | nats-2 | redis-7 |
|---|---|---|
| scope | network | network |

| case | what it shows | nats-2 | redis-7 |
|---|---|---|---|
| a | one | passed | passed |
| new | another | passed | not declared |
`)
	got := merge(committed, run)
	if want := []string{"mem", "etcd", "nats-2", "redis-7"}; !slices.Equal(got.columns, want) {
		t.Errorf("columns %q, want %q", got.columns, want)
	}
	for _, c := range []struct{ row, column, want string }{
		{"scope", "mem", "process"}, {"scope", "nats-2", "network"},
		{"a", "etcd", "passed"}, {"a", "redis-7", "passed"}, {"a", "nats-2", "passed"},
		{"old", "mem", ""}, {"new", "redis-7", "not declared"}, {"new", "mem", ""},
	} {
		if cell := got.cell(c.row, c.column); cell != c.want {
			t.Errorf("%s, %s: got %q, want %q", c.row, c.column, cell, c.want)
		}
	}
	if len(got.rows) != 3 {
		t.Errorf("%d rows, want 3: a case that the suite no longer has must go", len(got.rows))
	}
}
