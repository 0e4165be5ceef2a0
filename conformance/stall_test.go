package conformance_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
)

// neverGrants is a backend whose waiters wait for ever.
func neverGrants() fault {
	return fault{name: "never grants", build: func(w *wrap, _ *service) {
		w.acquire = func(ctx context.Context, req backend.Request) (backend.Grant, error) {
			if g, err := w.Backend.TryAcquire(ctx, req); err == nil {
				return g, nil
			}
			req.OnWait(&backend.LockedError{Holder: backend.Holder{Token: 7}})
			<-ctx.Done()
			return nil, ctx.Err()
		}
	}}
}

// TestStalledCase: a case that fails because a client waits says which client waits for which lock, whether the case
// gave up or was ended.
func TestStalledCase(t *testing.T) {
	t.Parallel()
	waits := regexp.MustCompile(`waiting at that time:\n\s+client 2 has waited for "conformance-\w+-\d+-release" for [\d.]+m?s in 1 Locks; when the first began to wait it was locked, token 7\n\s+the service shows that "conformance-\w+-\d+-release" is (held by|free)`)
	for name, limits := range map[string]struct{ slack, timeout time.Duration }{
		"gives up": {500 * time.Millisecond, time.Minute},
		"is ended": {20 * time.Second, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := neverGrants().open()
			h.Slack = limits.slack
			rep, err := conformance.Check(t.Context(), h, conformance.Only("^waiting/09-granted-on-release$"), conformance.CaseTimeout(limits.timeout))
			if err != nil {
				t.Fatal(err)
			}
			if res := rep.Results[0]; res.Status != conformance.Failed || !waits.MatchString(res.Reason) {
				t.Errorf("want it to fail and to match %s, got %s: %s", waits, res.Status, res.Reason)
			}
		})
	}
}

// TestFencingWithoutHooks: strengths of fencing that no hook can put to the test are not run, rather than passed.
func TestFencingWithoutHooks(t *testing.T) {
	t.Parallel()
	claims := fault{name: "claims", build: func(w *wrap, _ *service) {
		w.caps = func(c *backend.Capabilities) { c.Scope, c.Fencing = backend.ScopeNetwork, backend.FencingFailover }
	}}
	rep, err := conformance.Check(t.Context(), claims.open(), conformance.Only("^fencing/32-over-(restart|failover|state-loss)$"))
	if err != nil {
		t.Fatal(err)
	}
	if rep.Count(conformance.NotRun) != 3 {
		t.Errorf("want 3 cases not run, got %s: %+v", rep.Summary(), rep.Results)
	}
}

// TestVersions: a report says which suite judged which driver.
func TestVersions(t *testing.T) {
	t.Parallel()
	rep, err := conformance.Check(t.Context(), memHarness(), conformance.Only("^exclusion/01-free"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(rep.Driver, "github.com/interlock-go/lock") || rep.Suite != "github.com/interlock-go/lock/conformance (devel)" {
		t.Errorf("driver %q and suite %q: want their modules with versions", rep.Driver, rep.Suite)
	}
	for _, version := range []string{rep.Driver, rep.Suite} {
		if !strings.Contains(rep.Summary(), version) || !strings.Contains(rep.Markdown(), version) {
			t.Errorf("want %q in the summary and in Markdown, got %s", version, rep.Summary())
		}
	}
}
