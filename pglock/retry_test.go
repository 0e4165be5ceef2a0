package pglock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
)

// TestRolledBackAtCommit: rows of a statement that the server rolls back at its commit do not count.
func TestRolledBackAtCommit(t *testing.T) {
	undone := of(renewed)
	undone.failed = "40001"
	b := scripted(t, []reply{undone, of("lost")})
	if err := renewOnce(t.Context(), b); !errors.Is(err, backend.ErrLost) {
		t.Errorf("a renewal that is rolled back, and then finds no grant: want ErrLost, got %v", err)
	}
	undone = of(ended)
	undone.failed = "40001"
	b = scripted(t, []reply{undone, of(free)})
	if e := b.svc.End(t.Context(), []queue.End{{Request: requestOf("o")}})[0]; e.Err != nil || e.Held {
		t.Errorf("a release that is rolled back, and then finds no grant: want none, got %+v", e)
	}
}

// TestRetryAfterRollback: at the stricter isolation levels the server rolls back a statement that waited for a row which
// another transaction changed. It is sent again within the time limit; an attempt that waits asks for longer.
func TestRetryAfterRollback(t *testing.T) {
	quick, slow := reply{failed: "40001"}, reply{failed: "40001", after: 4 * time.Second}
	lock := func(ctx context.Context, b *Backend) error {
		b.svc.listener.up = true
		g, err := b.Acquire(ctx, requestOf("o"))
		if err == nil && g.Token() != 7 {
			t.Errorf("token %d", g.Token())
		}
		return err
	}
	try := func(ctx context.Context, b *Backend) error { _, err := b.TryAcquire(ctx, requestOf("o")); return err }
	for name, c := range map[string]struct {
		do      func(context.Context, *Backend) error
		first   reply
		times   int
		then    string
		says    string // the error
		unknown bool   // the outcome
		most    time.Duration
	}{
		"renewal":             {do: renewOnce, first: quick, times: 100, then: renewed, most: 5 * time.Second},
		"renewal, too long":   {do: renewOnce, first: quick, times: 10000, says: "each time within 5s", most: 6 * time.Second},
		"renewal, no answer":  {do: renewOnce, first: slow, times: 2, then: renewed, says: "no answer within 5s", unknown: true, most: 6 * time.Second},
		"TryLock":             {do: try, first: quick, times: 100, then: granted, most: 5 * time.Second},
		"Lock":                {do: lock, first: quick, times: 1000, then: granted, most: time.Minute},
		"Lock, until its TTL": {do: lock, first: quick, times: 100000, says: "each time within 5s", most: 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := scripted(t, append(slices.Repeat([]reply{c.first}, c.times), of(c.then)))
				begun := time.Now()
				err := c.do(t.Context(), b)
				switch {
				case c.says == "" && err != nil:
					t.Errorf("want nil, got %v", err)
				case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || backend.OutcomeUnknown(err) != c.unknown):
					t.Errorf("want an error that says %q, outcome unknown: %v, got %v", c.says, c.unknown, err)
				}
				if took := time.Since(begun); took > c.most {
					t.Errorf("want it within %v, got it after %v", c.most, took)
				}
			})
		})
	}
}
