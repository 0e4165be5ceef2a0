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

func TestRedis(t *testing.T) {
	for _, m := range []model.Redis{
		{Clients: 2, Attempts: 1, Slow: 1},
		{Clients: 2, Attempts: 1, Faults: 1, Cancels: 1},
		{Clients: 3, Attempts: 1, Prompt: true},
	} {
		t.Run(fmt.Sprintf("%d clients, %d attempts, %d faults, %d cancels, %d slow", m.Clients, m.Attempts, m.Faults, m.Cancels, m.Slow), func(t *testing.T) {
			m.RedisRules = model.RedisProduct()
			holds(t, m)
		})
	}
}

// Each safety step of the hand-off is left out once.
func TestRedisWithout(t *testing.T) {
	const (
		two     = "two trust"
		token   = "a token did not rise"
		late    = "lasted longer than the provisional TTL"
		over    = "that was over"
		forever = "for ever"
	)
	for _, c := range []struct {
		step   string
		change func(m *model.Redis)
		flaw   string
	}{
		{"the owner check of RELEASE", func(m *model.Redis) { m.ReleaseChecksOwner, m.Attempts = false, 2 }, two},
		{"the owner check of RENEW", func(m *model.Redis) { m.RenewChecksOwner = false }, over},
		{"the holder's ACQUIRE again being the same grant", func(m *model.Redis) { m.AcquireIdempotent = false }, over},
		{"the tombstone", func(m *model.Redis) { m.Tombstone = false }, over},
		{"the expiry of a hand-off", func(m *model.Redis) { m.HandOffExpires, m.Cancels, m.Prompt = false, 0, true }, forever},
		{"the provisional TTL", func(m *model.Redis) { m.ProvisionalTTL = false }, late},
		{"a new token at a hand-off", func(m *model.Redis) { m.RaisesToken = false }, token},
		{"the margin", func(m *model.Redis) { m.Margin, m.Slow = false, 1 }, two},
		{"counting from the sending", func(m *model.Redis) { m.FromSend = false }, two},
		{"counting a pushed grant from the last reply", func(m *model.Redis) { m.PushFromReply, m.Attempts = false, 2 }, two},
		{"the end of trust before the release", func(m *model.Redis) { m.EndsBeforeRelease = false }, two},
		{"abandoning what is uncertain", func(m *model.Redis) { m.Abandons = false }, over},
		{"leaving the queue by ABANDON", func(m *model.Redis) { m.AbandonDequeues, m.ReleaseDequeues = false, true }, over},
		{"the timer of a waiter", func(m *model.Redis) { m.Timer = false }, forever},
		// not in the product: see RedisProduct
		{"no orphan in the queue even after a late ACQUIRE", func(m *model.Redis) { m.ReleaseDequeues = true }, ""},
	} {
		t.Run(c.step, func(t *testing.T) {
			m := model.Redis{RedisRules: model.RedisProduct(), Clients: 2, Attempts: 1, Faults: 1, Cancels: 1}
			c.change(&m)
			if c.flaw == "" {
				holds(t, m)
				return
			}
			breaks(t, m, c.flaw)
		})
	}
}

func weights(w ...int8) (all [3]int8) {
	copy(all[:], w)
	return all
}

// Readers, permits and a writer share one queue.
func TestRedisShares(t *testing.T) {
	for name, m := range map[string]model.Redis{
		"two readers, faults":             {Clients: 2, Weights: weights(1, 1), Faults: 1, Cancels: 1},
		"a reader and a writer, faults":   {Clients: 2, Weights: weights(1, 0), Faults: 1, Cancels: 1, Downgrades: true},
		"a reader and a writer, slow":     {Clients: 2, Weights: weights(1, 0), Slow: 1, Downgrades: true},
		"two readers and a writer":        {Clients: 3, Weights: weights(1, 0, 1), Prompt: true},
		"a reader and two writers":        {Clients: 3, Weights: weights(0, 1, 0), Prompt: true, Downgrades: true},
		"permits, faults":                 {Clients: 2, Weights: weights(1, 2), Capacity: 2, Faults: 1, Cancels: 1},
		"two permits, faults":             {Clients: 2, Weights: weights(1, 1), Capacity: 2, Faults: 1, Cancels: 1},
		"permits of a semaphore of two":   {Clients: 3, Weights: weights(1, 2, 1), Capacity: 2, Prompt: true},
		"permits and a writer":            {Clients: 3, Weights: weights(1, 1, 0), Capacity: 2, Prompt: true},
		"readers and a writer, cancelled": {Clients: 3, Weights: weights(1, 0, 1), Prompt: true, Cancels: 1},
	} {
		t.Run(name, func(t *testing.T) {
			m.RedisRules, m.Attempts = model.RedisProduct(), 1
			holds(t, m)
		})
	}
}

// Each safety step of the shares is left out once.
func TestRedisSharesWithout(t *testing.T) {
	const two, late = "two trust", "was not admitted"
	three := model.Redis{Clients: 3, Weights: weights(1, 0, 1), Prompt: true, Cancels: 1}
	for _, c := range []struct {
		step   string
		m      model.Redis
		change func(r *model.RedisRules)
		flaw   string
	}{
		{"a writer waiting for readers", three, func(r *model.RedisRules) { r.WritersWait = false }, two},
		{"counting permits", model.Redis{Clients: 2, Weights: weights(1, 2), Capacity: 2}, func(r *model.RedisRules) { r.CountsPermits = false }, two},
		{"the slots of other holders", model.Redis{Clients: 2, Weights: weights(1, 1), Capacity: 2}, func(r *model.RedisRules) { r.LowestSlots = false }, two},
		{"admitting readers behind a writer that gave up", three, func(r *model.RedisRules) { r.AbandonAdmits = false }, late},
		{"admitting readers by a downgrade", model.Redis{Clients: 2, Weights: weights(0, 1), Downgrades: true}, func(r *model.RedisRules) { r.DowngradeAdmits = false }, late},
		{"a renewal of a share that is held", model.Redis{Clients: 2, Weights: weights(1, 0), Faults: 1, Cancels: 1}, func(r *model.RedisRules) { r.RenewChecksOwner = false }, "that was over"},
		{"the owner check of a share's release", model.Redis{Clients: 3, Weights: weights(1, 0, 1), Prompt: true, Faults: 1}, func(r *model.RedisRules) { r.ReleaseChecksOwner = false }, two},
		{"the tombstone of a share", model.Redis{Clients: 2, Weights: weights(1, 1), Faults: 1, Cancels: 1}, func(r *model.RedisRules) { r.Tombstone = false }, "that was over"},
		{"the provisional TTL of a share", model.Redis{Clients: 2, Weights: weights(1, 0), Faults: 1}, func(r *model.RedisRules) { r.ProvisionalTTL = false }, "provisional TTL"},
		{"the end of trust before a share's release", model.Redis{Clients: 2, Weights: weights(1, 0)}, func(r *model.RedisRules) { r.EndsBeforeRelease = false }, two},
	} {
		t.Run(c.step, func(t *testing.T) {
			c.m.RedisRules, c.m.Attempts = model.RedisProduct(), 1
			c.change(&c.m.RedisRules)
			breaks(t, c.m, c.flaw)
		})
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
