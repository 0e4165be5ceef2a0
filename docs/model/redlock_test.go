//go:build !race

// The searches run in one goroutine: the race detector finds nothing in them, and
// makes them ten times slower. make test runs them without it.

package model_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/docs/model"
)

func holds[S comparable](t *testing.T, m model.Machine[S]) {
	t.Helper()
	t.Parallel()
	start := time.Now()
	r := model.Search(m)
	t.Logf("%v (%v)", r, time.Since(start).Round(time.Millisecond))
	if r.Flaw != "" {
		t.Fail()
	}
}

// breaks: the search finds the flaw, so it would have found it.
func breaks[S comparable](t *testing.T, m model.Machine[S], flaw string) {
	t.Helper()
	t.Parallel()
	r := model.Search(m)
	t.Log(r)
	if !strings.Contains(r.Flaw, flaw) || flaw == "" {
		t.Errorf("found %q, want %q", r.Flaw, flaw)
	}
}

func TestRedlock(t *testing.T) {
	for _, m := range []model.Redlock{
		{Clients: 2, Cancels: 1},
		{Clients: 2, Late: 1, Ticks: 2},
		{Clients: 2, Down: true, Cancels: 1},
		{Clients: 2, Renewals: 1},
		{Clients: 2, Restarts: 1},
		{Clients: 2, Crashes: 1},
		{Clients: 3, Ticks: 1},
		{Clients: 3, Late: 1, Scene: model.Minority, Ticks: 1},
		{Clients: 3, Scene: model.MinorityToAsk, Ticks: 1},
	} {
		t.Run(fmt.Sprintf("%d clients, %d late, %d restarts, %d crashes, %d renewals, down %v, scene %d, %d ticks", m.Clients, m.Late, m.Restarts, m.Crashes, m.Renewals, m.Down, m.Scene, m.Ticks), func(t *testing.T) {
			m.RedlockRules = model.AllRedlockRules()
			holds(t, m)
		})
	}
}

// Each safety step of the quorum is left out once.
func TestRedlockWithout(t *testing.T) {
	for _, c := range []struct {
		step   string
		m      model.Redlock
		change func(r *model.RedlockRules)
		flaw   string
	}{
		{"a majority", model.Redlock{}, func(r *model.RedlockRules) { r.Majority = false }, "two contenders trust"},
		{"yielding", model.Redlock{Down: true}, func(r *model.RedlockRules) { r.Yields = false }, "for ever"},
		{"forgetting before a yield is sent", model.Redlock{Clients: 3, Late: 1, Scene: model.Minority, Ticks: 1}, func(r *model.RedlockRules) { r.ForgetsFirst = false }, "a token did not rise"},
		{"a yield being of one grant only", model.Redlock{Clients: 3, Late: 1, Scene: model.Minority, Ticks: 1}, func(r *model.RedlockRules) { r.YieldsOne = false }, "two contenders trust"},
		{"a new grant after a yield without an answer", model.Redlock{Clients: 3, Late: 1, Scene: model.Minority, Ticks: 1}, func(r *model.RedlockRules) { r.NewGrantAfterYield = false }, "a token did not rise"},
		{"ignoring messages older than an answer", model.Redlock{Clients: 3, Scene: model.MinorityToAsk, Ticks: 1}, func(r *model.RedlockRules) { r.OrderedPush = false }, "a token did not rise"},
		{"writing the token to a majority", model.Redlock{Late: 1}, func(r *model.RedlockRules) { r.WriteBack = false }, "a token did not rise"},
		{"seeding a lost counter by the clock", model.Redlock{Restarts: 1}, func(r *model.RedlockRules) { r.SeededByClock = false }, "a token did not rise"},
		{"leaving out a node that lost its data", model.Redlock{Restarts: 1}, func(r *model.RedlockRules) { r.RestartDelay = false }, "two contenders trust"},
		{"the tombstone", model.Redlock{Late: 1, Cancels: 1}, func(r *model.RedlockRules) { r.Tombstone = false }, "stays behind"},
		// It keeps votes from wandering needlessly. No promise depends on it.
		{"yielding on fresh answers only", model.Redlock{}, func(r *model.RedlockRules) { r.FreshOnly = false }, ""},
	} {
		t.Run(c.step, func(t *testing.T) {
			c.m.RedlockRules, c.m.Clients = model.AllRedlockRules(), max(2, c.m.Clients)
			c.change(&c.m.RedlockRules)
			if c.flaw == "" {
				holds(t, c.m)
				return
			}
			breaks(t, c.m, c.flaw)
		})
	}
}
