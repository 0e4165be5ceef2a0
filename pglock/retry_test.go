package pglock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
)

// TestRolledBackAtCommit: rows of a statement that the server rolls back at its commit
// are not counted with those of the next try.
func TestRolledBackAtCommit(t *testing.T) {
	one := answer{rows: [][]string{{"", ""}}}
	b := scripted(t, rolledBackAnswer(one), answer{})
	if err := grantFor(b, requestOf("o"), time.Minute).Renew(t.Context(), time.Minute); !errors.Is(err, backend.ErrLost) {
		t.Errorf("a renewal that is rolled back and then finds no row: want ErrLost, got %v", err)
	}
	b = scripted(t, rolledBackAnswer(one), answer{})
	if err := grantFor(b, requestOf("o"), time.Minute).Release(t.Context()); !errors.Is(err, backend.ErrLost) {
		t.Errorf("a release that is rolled back and then finds no row: want ErrLost, got %v", err)
	}
	list := answer{rows: [][]string{{`lock:k`, "1", "o", "", "1000", "0", "{}", "{}"}}}
	b = scripted(t, rolledBackAnswer(list), list)
	if infos, err := b.infos(t.Context(), nil, nil, 9); err != nil || len(infos) != 1 || infos[0].Name != "k" {
		t.Errorf("a list whose first try is rolled back: want k once, got %+v, %v", infos, err)
	}
	b = scripted(t, rolledBackAnswer(answer{rows: [][]string{{"1", "o", "", "1000", "f", "", "", "", "", "", ""}}}), answer{})
	if h, err := b.Break(t.Context(), "k", ""); err != nil || h != nil {
		t.Errorf("a break that is rolled back and then finds no holder: want none, got %+v, %v", h, err)
	}
}

// TestRetryAfterRollback: at the stricter isolation levels the server rolls back a
// statement that waited for a row which another transaction changed. Acquire sends it
// again for its TTL; other operations send it again within the timeout.
func TestRetryAfterRollback(t *testing.T) {
	const pauses = 4 * time.Second // 250, each of 11 ms on average
	quick, slow := answer{failed: "40001"}, answer{failed: "40001", before: func() { time.Sleep(4 * time.Second) }}
	lock := func(ctx context.Context, b *Backend) error {
		b.listener.up = true
		g, err := b.Acquire(ctx, requestOf("o"))
		if err == nil && g.Token() != 7 {
			err = fmt.Errorf("token %d", g.Token())
		}
		return err
	}
	try := func(ctx context.Context, b *Backend) error { _, err := b.TryAcquire(ctx, requestOf("o")); return err }
	renew := func(ctx context.Context, b *Backend) error {
		return grantFor(b, requestOf("o"), time.Minute).Renew(ctx, time.Minute)
	}
	for name, c := range map[string]struct {
		do      func(context.Context, *Backend) error
		first   answer
		times   int
		within  time.Duration // of the context
		closed  bool          // when the second answer is on its way
		says    string        // the error
		unknown bool          // the outcome
		took    time.Duration // without pauses
	}{
		"renewal":                      {do: renew, first: quick, times: 250},
		"renewal, too long":            {do: renew, first: slow, times: 2, says: "no answer within 5s", unknown: true, took: 5 * time.Second},
		"TryLock, too long":            {do: try, first: slow, times: 2, says: "no answer within 5s", unknown: true, took: 5 * time.Second},
		"Lock":                         {do: lock, first: slow, times: 5, took: 20 * time.Second},
		"Lock, too long":               {do: lock, first: slow, times: 16, says: "40001", took: time.Minute},
		"Lock, until its context ends": {do: lock, first: slow, times: 5, within: 10 * time.Second, says: "deadline", unknown: true, took: 10 * time.Second},
		"Lock, until Close":            {do: lock, first: slow, times: 5, closed: true, says: "closed", took: 8 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				script := append(slices.Repeat([]answer{c.first}, c.times), acquired("1", "7"))
				var b *Backend
				if c.closed {
					script[1].before = func() { c.first.before(); b.cancel() }
				}
				b = scripted(t, script...)
				ctx := t.Context()
				if c.within > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.within)
					defer cancel()
				}
				begun := time.Now()
				err := c.do(ctx, b)
				took := time.Since(begun)
				switch {
				case c.says == "" && err != nil:
					t.Errorf("want nil, got %v", err)
				case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || backend.OutcomeUnknown(err) != c.unknown):
					t.Errorf("want an error that says %q, outcome unknown: %v, got %v", c.says, c.unknown, err)
				}
				if took < c.took || took > c.took+pauses {
					t.Errorf("want it after %v, got it after %v", c.took, took)
				}
			})
		})
	}
}
