package faults

import (
	"fmt"
	"testing"
)

// The table counts each violation once, of whatever rule it is.
func TestTable(t *testing.T) {
	t.Parallel()
	var table Table
	for _, r := range []Rule{Exclusion, Fence, Token, Orphan, Starved, Cut, Cut, Stuck, "a new rule"} {
		table.Add(&Result{Service: "s", Fault: "f", Violations: []Violation{{Rule: r}}})
	}
	c := table.cells[[2]string{"s", "f"}]
	if got := fmt.Sprint(c.exclusion, c.tokens, c.orphans, c.forgotten, c.others); got != "2 1 1 3 2" {
		t.Errorf("got %s", got)
	}
}
