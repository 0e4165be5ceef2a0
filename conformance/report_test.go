package conformance_test

import (
	"context"
	"errors"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
)

func TestCases(t *testing.T) {
	seen := map[string]bool{}
	id := regexp.MustCompile(`^[a-z]+/\d\d-[a-z0-9-]+$`)
	for _, c := range conformance.Cases() {
		if !id.MatchString(c.ID) || seen[c.ID] {
			t.Errorf("id %q: want section/number-name, once", c.ID)
		}
		seen[c.ID] = true
		if c.Title == "" || !strings.HasSuffix(c.Clause, ".") {
			t.Errorf("%s: want a title and a clause that is a sentence, got %q and %q", c.ID, c.Title, c.Clause)
		}
	}
}

func TestReport(t *testing.T) {
	rep, err := conformance.Check(t.Context(), memHarness(), conformance.Only("^(exclusion/01|waiting/13|exclusion/02-f)"))
	if err != nil {
		t.Fatal(err)
	}
	if !rep.OK() || rep.Count(conformance.Passed) != 2 || rep.Count(conformance.NotRun) != 1 || rep.Count(conformance.NotDeclared) != 2 {
		t.Errorf("want 2 passed, 1 not run, 2 not declared, got %s", rep.Summary())
	}
	b, err := rep.JSON()
	if err != nil {
		t.Fatal(err)
	}
	again, err := conformance.ReadReport(b)
	if err != nil {
		t.Fatal(err)
	}
	again.Started = rep.Started // monotonic reading
	if !reflect.DeepEqual(again, rep) {
		t.Errorf("want the report back, got %+v instead of %+v", again, rep)
	}
	for _, want := range []string{"| exclusion/01-free-key-granted |", "passed", "not run: the harness has no ForeignHolder"} {
		if !strings.Contains(rep.Markdown(), want) {
			t.Errorf("Markdown: want %q in\n%s", want, rep.Markdown())
		}
	}
	m := conformance.Matrix(rep, again)
	for _, want := range []string{"| mem | mem |", "| yes | yes |", "| not run | not run |"} {
		if !strings.Contains(m, want) {
			t.Errorf("Matrix: want %q in\n%s", want, m)
		}
	}
}

func TestRequireHooks(t *testing.T) {
	const id = "exclusion/02-foreign-holder"
	for _, tt := range []struct {
		opts []conformance.Option
		want conformance.Status
		says string
	}{
		{nil, conformance.NotRun, "no ForeignHolder"},
		{[]conformance.Option{conformance.RequireHooks()}, conformance.Failed, "no ForeignHolder"},
		{[]conformance.Option{conformance.RequireHooks(), conformance.Except(id, "there are no other programs")}, conformance.NotRun, "no other programs"},
	} {
		rep, err := conformance.Check(t.Context(), memHarness(), append(tt.opts, conformance.Only("^"+id+"$"))...)
		if err != nil {
			t.Fatal(err)
		}
		if res := rep.Results[0]; res.Status != tt.want || !strings.Contains(res.Reason, tt.says) {
			t.Errorf("want %s with %q, got %s: %s", tt.want, tt.says, res.Status, res.Reason)
		}
	}
}

func TestHarnessThatCannotOpen(t *testing.T) {
	h := memHarness()
	h.Open = func(context.Context) (backend.Backend, error) { return nil, errors.New("no such host") }
	if _, err := conformance.Check(t.Context(), h); err == nil || !strings.Contains(err.Error(), "no such host") {
		t.Errorf("want an error that says why, got %v", err)
	}
	h.Name = ""
	if _, err := conformance.Check(t.Context(), h); err == nil || err.Error() != "conformance: open: no such host" {
		t.Errorf("without a name: want %q, got %v", "conformance: open: no such host", err)
	}
	if _, err := conformance.Check(t.Context(), conformance.Harness{}); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("want ErrInvalid, got %v", err)
	}
}
