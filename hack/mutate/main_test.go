package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// The list must not rot: each step is in the code, and in the document.
func TestStepsAreInTheCode(t *testing.T) {
	doc, err := os.ReadFile("../../" + document)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		if _, err := s.mutated("../.."); err != nil {
			t.Errorf("%s: %v", s.What, err)
		}
		if s.Old == s.New || s.Run == "" {
			t.Errorf("%s: takes nothing away, or names no test", s.What)
		}
		if !bytes.Contains(doc, []byte("| `"+s.File+"` | "+s.What+" |")) {
			t.Errorf("%s: not in %s: run make mutate", s.What, document)
		}
	}
	if n := strings.Count(string(doc), "\n| `"); n != len(steps) {
		t.Errorf("%s has %d steps, want %d: run make mutate", document, n, len(steps))
	}
	if strings.Contains(string(doc), "**none**") {
		t.Errorf("%s has a step that no test guards", document)
	}
}
