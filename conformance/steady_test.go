package conformance

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
)

// TestRequestsWithoutAnswer: requests that fail soon, one after the other, are one time without an answer.
func TestRequestsWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r requests
		for i, c := range []struct {
			err  error
			want time.Duration
		}{
			{nil, 1}, {errors.New("no answer"), 1}, {backend.ErrUncertain, 3}, {backend.ErrLost, 5}, // since the second
			{backend.ErrLocked, 5}, {errors.New("no answer"), 5},
		} {
			end := r.begin()
			time.Sleep(time.Second)
			end(c.err)
			if got := r.longest(); got != c.want*time.Second {
				t.Errorf("after request %d, which returned %v: want %v, got %v", i, c.err, c.want*time.Second, got)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(5 * time.Second)
		if got := r.longest(); got != 7*time.Second {
			t.Errorf("while there is no answer: want 7s, got %v", got)
		}
	})
}
