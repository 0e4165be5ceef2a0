//go:build !race

package model_test

import (
	"testing"

	"github.com/interlock-go/lock/docs/model"
)

func weights(w ...int8) (all [3]int8) {
	copy(all[:], w)
	return all
}

// Readers, permits and writers are admitted by transactions.
func TestSQL(t *testing.T) {
	for name, m := range map[string]model.SQL{
		"a reader and a writer, slow":         {Clients: 2, Weights: weights(1, 0), Slow: 1, Renewing: 2},
		"a reader and a writer, faults":       {Clients: 2, Weights: weights(1, 0), Faults: 1, Renewing: 1},
		"a reader and a writer, cancelled":    {Clients: 2, Weights: weights(1, 0), Faults: 1, Cancels: 1, Renewing: 1, Prompt: true},
		"a writer that becomes a reader":      {Clients: 2, Weights: weights(0, 1), Faults: 1, Downgrades: true, Renewing: 1, Prompt: true},
		"permits, faults":                     {Clients: 2, Weights: weights(1, 2), Capacity: 2, Faults: 1, Cancels: 1, Renewing: 1, Prompt: true},
		"two readers and a writer":            {Clients: 3, Weights: weights(1, 0, 1), Renewing: 1, Prompt: true},
		"permits of a semaphore of two":       {Clients: 3, Weights: weights(1, 1, 2), Capacity: 2, Renewing: 1, Prompt: true},
		"two readers and a writer, cancelled": {Clients: 3, Weights: weights(1, 0, 1), Cancels: 1, Prompt: true},
		"two attempts, slow":                  {Clients: 2, Attempts: 2, Weights: weights(1, 0), Slow: 1, Prompt: true},
		"two attempts, faults":                {Clients: 2, Attempts: 2, Weights: weights(1, 0), Faults: 1, Prompt: true},
		"two attempts, cancelled":             {Clients: 2, Attempts: 2, Weights: weights(1, 1), Capacity: 1, Cancels: 2, Prompt: true},
	} {
		t.Run(name, func(t *testing.T) {
			m.SQLRules, m.Attempts = model.SQLProduct(), max(1, m.Attempts)
			holds(t, m)
		})
	}
}

// Each safety step of the transactions is left out once.
func TestSQLWithout(t *testing.T) {
	const (
		two     = "two trust"
		late    = "was not admitted"
		over    = "that was over"
		forever = "for ever"
	)
	faults := model.SQL{Clients: 2, Weights: weights(1, 0), Faults: 1, Cancels: 1, Renewing: 2, Prompt: true}
	permits := model.SQL{Clients: 2, Weights: weights(1, 1), Capacity: 2, Renewing: 2, Prompt: true}
	three := model.SQL{Clients: 3, Weights: weights(1, 0, 1), Cancels: 1, Prompt: true}
	plain := model.SQL{Clients: 2, Weights: weights(1, 0), Renewing: 2}
	trust := model.SQL{Clients: 2, Weights: weights(1, 0), Renewing: 2, Slow: 1, TrustOnly: true}
	down := model.SQL{Clients: 2, Weights: weights(0, 1), Downgrades: true, Renewing: 2, Prompt: true}
	for _, c := range []struct {
		step   string
		m      model.SQL
		change func(r *model.SQLRules)
		flaw   string
	}{
		{"the lock of the row before permits are read", permits, func(r *model.SQLRules) { r.ReadsBehindLock = false }, two},
		{"the second look at an expiry", plain, func(r *model.SQLRules) { r.RechecksExpiry = false }, "before its end"},
		// These two are no steps of exclusion: see README.md.
		{"the second look at an expiry, by trust", trust, func(r *model.SQLRules) { r.RechecksExpiry = false }, ""},
		{"the expiry in a renewal, by trust", trust, func(r *model.SQLRules) { r.RenewChecksExpiry = false }, ""},
		{"the expiry in a renewal", faults, func(r *model.SQLRules) { r.RenewChecksExpiry = false }, over},
		{"a renewal finding no row", faults, func(r *model.SQLRules) { r.RenewFindsRow = false }, over},
		{"an answer after the commit", faults, func(r *model.SQLRules) { r.AnswersAfterCommit = false }, two},
		{"a request finding its grant", faults, func(r *model.SQLRules) { r.AcquireIdempotent = false }, forever},
		{"the tombstone", faults, func(r *model.SQLRules) { r.Tombstone = false }, over},
		{"one counter of tokens", plain, func(r *model.SQLRules) { r.OneCounter = false }, "a token did not rise"},
		{"the provisional TTL", plain, func(r *model.SQLRules) { r.ProvisionalTTL = false }, "provisional TTL"},
		{"counting permits", model.SQL{Clients: 2, Weights: weights(1, 2), Capacity: 2, Prompt: true}, func(r *model.SQLRules) { r.CountsPermits = false }, two},
		{"the slots of other holders", permits, func(r *model.SQLRules) { r.FreeSlots = false }, two},
		{"a writer waiting for readers", plain, func(r *model.SQLRules) { r.WritersWait = false }, two},
		{"admitting waiters by a release", plain, func(r *model.SQLRules) { r.ReleaseAdmits = false }, late},
		{"admitting readers behind a writer that gave up", three, func(r *model.SQLRules) { r.AbandonAdmits = false }, late},
		{"leaving the queue", faults, func(r *model.SQLRules) { r.AbandonDequeues = false }, over},
		{"admitting readers by a downgrade", down, func(r *model.SQLRules) { r.DowngradeAdmits = false }, late},
		{"a downgrade in one transaction", model.SQL{Clients: 2, Downgrades: true, Prompt: true}, func(r *model.SQLRules) { r.DowngradeInserts = false }, two},
		{"the margin", model.SQL{Clients: 2, Weights: weights(1, 0), Slow: 1, Prompt: true}, func(r *model.SQLRules) { r.Margin = false }, two},
		{"counting from the sending", plain, func(r *model.SQLRules) { r.FromSend = false }, two},
		{"the end of trust before the release", plain, func(r *model.SQLRules) { r.EndsBeforeRelease = false }, two},
		{"abandoning what is uncertain", faults, func(r *model.SQLRules) { r.Abandons = false }, over},
		{"the timer of a waiter", faults, func(r *model.SQLRules) { r.Timer = false }, forever},
	} {
		t.Run(c.step, func(t *testing.T) {
			m := c.m
			m.SQLRules, m.Attempts = model.SQLProduct(), max(1, m.Attempts)
			c.change(&m.SQLRules)
			if c.flaw == "" {
				holds(t, m)
				return
			}
			breaks(t, m, c.flaw)
		})
	}
}
