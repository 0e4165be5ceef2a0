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

// renewed answers a batch, of which it found these.
func renewed(found ...int) (a answer) {
	for _, n := range found {
		a.rows = append(a.rows, []string{strconv.Itoa(n), ""})
	}
	return a
}

func undone(a answer) answer {
	a.failed = "40001"
	return a
}

// TestBatch: what was not found is asked for alone, and a batch that the server undoes
// is divided.
func TestBatch(t *testing.T) {
	one, none := answer{rows: [][]string{{"", ""}}}, answer{}
	for name, c := range map[string]struct {
		of     int
		script []answer
		lost   []int
		failed []int
	}{
		"nothing":             {},
		"one":                 {of: 1, script: []answer{one}},
		"all":                 {of: 4, script: []answer{renewed(3, 1, 4, 2)}},
		"one locked":          {of: 4, script: []answer{renewed(1, 2, 4), one}},
		"one lost":            {of: 4, script: []answer{renewed(1, 2, 4), none}, lost: []int{2}},
		"undone":              {of: 4, script: []answer{undone(renewed(1, 2, 3, 4)), renewed(1, 2), renewed(1, 2)}},
		"undone, and lost":    {of: 4, script: []answer{undone(renewed(1, 2, 3, 4)), renewed(1, 2), renewed(2), none}, lost: []int{2}},
		"undone, all of them": {of: 2, script: []answer{undone(renewed(1, 2)), undone(one), one, one}},
		"failed":              {of: 3, script: []answer{{failed: "42P01"}}, failed: []int{0, 1, 2}},
		"half failed":         {of: 4, script: []answer{undone(answer{}), {failed: "42P01"}, renewed(1, 2)}, failed: []int{0, 1}},
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
					all = append(all, backend.Renewal{Grant: b.newAttempt(req, false).grant(reply{sent: time.Now(), left: time.Second}), TTL: time.Duration(i+1) * time.Minute})
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
						// from before the last request, which was answered after 100 ms
						if most := all[i].TTL + time.Since(begun) - 100*time.Millisecond; err != nil || until < all[i].TTL || until > most {
							t.Errorf("%d: want it renewed for %v from the request on, got %v, %v", i, all[i].TTL, until, err)
						}
					case "lost":
						if !errors.Is(err, backend.ErrLost) || b.attempts[fmt.Sprint("o", i)] != nil {
							t.Errorf("%d: want it lost and forgotten, got %v", i, err)
						}
					case "failed":
						if err == nil || errors.Is(err, backend.ErrLost) || isUncertain(err) || until != time.Second {
							t.Errorf("%d: want it failed for certain, got %v, certain for %v", i, err, until)
						}
					}
				}
				if kept := len(b.attempts); kept != c.of-len(c.lost) {
					t.Errorf("want the others known, got %d", kept)
				}
			})
		})
	}
}

// TestBatchAnswersInTime: a row that is locked for long does not withhold the answers of
// the others for longer than an eighth of the least TTL.
func TestBatchAnswersInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := answer{rows: [][]string{{"", ""}}, before: func() { time.Sleep(time.Minute) }}
		b := scripted(t, renewed(1, 3), hangs)
		var all []backend.Renewal
		for i := range 3 {
			all = append(all, backend.Renewal{Grant: b.newAttempt(requestOf(fmt.Sprint("o", i)), false).grant(reply{sent: time.Now(), left: time.Second}), TTL: time.Duration(8+i) * time.Second})
		}
		begun := time.Now()
		errs := b.RenewBatch(t.Context(), all)
		if took := time.Since(begun); took > time.Second {
			t.Errorf("answered after %v, of a TTL of 8s", took)
		}
		if errs[0] != nil || errs[2] != nil || !isUncertain(errs[1]) {
			t.Errorf("want the second uncertain, and the others renewed, got %v", errs)
		}
	})
}

// TestLateAnswer: what was sent before the last renewal moves nothing.
func TestLateAnswer(t *testing.T) {
	var g grant
	now := time.Now()
	g.renewed(now, time.Minute)
	g.renewed(now.Add(-time.Second), time.Second)
	if until := g.Until(); !until.Equal(now.Add(time.Minute)) {
		t.Errorf("certain for %v, want a minute", until.Sub(now))
	}
}
