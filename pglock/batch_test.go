package pglock

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
)

// renewedAnswer is the reply to a batch in which the server found these rows.
func renewedAnswer(found ...int) (a answer) {
	for _, n := range found {
		a.rows = append(a.rows, []string{strconv.Itoa(n), ""})
	}
	return a
}

// TestBatch: a grant whose row the batch did not find is renewed by itself, and a batch
// that the server rolls back is divided.
func TestBatch(t *testing.T) {
	one, none := answer{rows: [][]string{{"", ""}}}, answer{}
	for name, c := range map[string]struct {
		of     int
		script []answer
		lost   []int
		failed []int
	}{
		"nothing":                   {},
		"one":                       {of: 1, script: []answer{one}},
		"all":                       {of: 4, script: []answer{renewedAnswer(3, 1, 4, 2)}},
		"one locked":                {of: 4, script: []answer{renewedAnswer(1, 2, 4), one}},
		"one lost":                  {of: 4, script: []answer{renewedAnswer(1, 2, 4), none}, lost: []int{2}},
		"rolled back":               {of: 4, script: []answer{rolledBackAnswer(renewedAnswer(1, 2, 3, 4)), renewedAnswer(1, 2), renewedAnswer(1, 2)}},
		"rolled back, and one lost": {of: 4, script: []answer{rolledBackAnswer(renewedAnswer(1, 2, 3, 4)), renewedAnswer(1, 2), renewedAnswer(2), none}, lost: []int{2}},
		"all rolled back":           {of: 2, script: []answer{rolledBackAnswer(renewedAnswer(1, 2)), rolledBackAnswer(one), one, one}},
		"failed":                    {of: 3, script: []answer{{failed: "42P01"}}, failed: []int{0, 1, 2}},
		"half failed":               {of: 4, script: []answer{rolledBackAnswer(answer{}), {failed: "42P01"}, renewedAnswer(1, 2)}, failed: []int{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for i := range c.script {
					c.script[i].before = func() { time.Sleep(100 * time.Millisecond) }
				}
				b := scripted(t, c.script...)
				var all []backend.Renewal
				want := make([]string, c.of)
				for i := range c.of {
					req := requestOf(fmt.Sprint("o", i))
					req.OnLost = func(error) {}
					all = append(all, backend.Renewal{Grant: grantFor(b, req, time.Second), TTL: time.Duration(i+1) * time.Minute})
				}
				for _, i := range c.lost {
					want[i] = "lost"
				}
				for _, i := range c.failed {
					want[i] = "failed"
				}
				begun := time.Now()
				for i, err := range b.RenewBatch(t.Context(), all) {
					until := all[i].Grant.Until().Sub(begun)
					switch want[i] {
					case "":
						// counted from before the last request, which took 100 ms
						if most := all[i].TTL + time.Since(begun) - 100*time.Millisecond; err != nil || until < all[i].TTL || until > most {
							t.Errorf("%d: want it renewed for %v from the request, got %v, %v", i, all[i].TTL, until, err)
						}
					case "lost":
						if !errors.Is(err, backend.ErrLost) || b.attempts[fmt.Sprint("o", i)] != nil {
							t.Errorf("%d: want it lost and unregistered, got %v", i, err)
						}
					case "failed":
						if err == nil || errors.Is(err, backend.ErrLost) || backend.OutcomeUnknown(err) || until != time.Second {
							t.Errorf("%d: want it failed and not executed, got %v, trusted for %v", i, err, until)
						}
					}
				}
				if kept := len(b.attempts); kept != c.of-len(c.lost) {
					t.Errorf("want the others registered, got %d", kept)
				}
			})
		})
	}
}

// TestBatchReturnsInTime: a row that is locked for long delays the results of the others
// for at most an eighth of the smallest TTL.
func TestBatchReturnsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := answer{rows: [][]string{{"", ""}}, before: func() { time.Sleep(time.Minute) }}
		b := scripted(t, renewedAnswer(1, 3), hangs)
		var all []backend.Renewal
		for i := range 3 {
			all = append(all, backend.Renewal{Grant: grantFor(b, requestOf(fmt.Sprint("o", i)), time.Second), TTL: time.Duration(8+i) * time.Second})
		}
		begun := time.Now()
		errs := b.RenewBatch(t.Context(), all)
		if took := time.Since(begun); took > time.Second {
			t.Errorf("want it to return within 1s, an eighth of a TTL of 8s, got %v", took)
		}
		if errs[0] != nil || errs[2] != nil || !errors.Is(errs[1], backend.ErrUncertain) {
			t.Errorf("want the outcome of the second unknown and the others renewed, got %v", errs)
		}
	})
}

// TestLateReply: the reply to a renewal that was sent before the last one moves nothing.
func TestLateReply(t *testing.T) {
	var g grant
	now := time.Now()
	g.renewed(now, time.Minute)
	g.renewed(now.Add(-time.Second), time.Second)
	if until := g.Until(); !until.Equal(now.Add(time.Minute)) {
		t.Errorf("want it trusted for a minute, got %v", until.Sub(now))
	}
}
