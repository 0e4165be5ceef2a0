package queuetest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
)

func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := NewServer()
		s, other := server.Process(), server.Process()
		r := &recorder{events: map[string][]Event{}, changed: make(chan struct{})}
		s.Start(r)
		holder := func(key string) string {
			t.Helper()
			req := attempt(newOwner(), queue.NoQueue)
			req.Key = key
			a, err := other.Acquire(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			return a.Holder.Owner
		}
		acquire := func(key string, f Faults, want error) {
			t.Helper()
			s.SetFaults(f)
			defer s.SetFaults(Faults{})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			a := attempt("a", queue.Join)
			a.Key = key
			_, err := s.Acquire(ctx, a)
			if !errors.Is(err, backend.ErrUncertain) || !errors.Is(err, want) {
				t.Errorf("got error %v, want ErrUncertain and %v", err, want)
			}
		}

		acquire("lost", Faults{LoseRequests: true}, errLost)
		if got := holder("lost"); got != "" {
			t.Errorf("the request was executed: %s holds the key", got)
		}
		acquire("executed", Faults{LoseReplies: true}, errLost)
		if got := holder("executed"); got != "a" {
			t.Errorf("%q holds the key, want the attempt of which the reply was lost", got)
		}
		acquire("late", Faults{Delay: 3 * time.Second}, context.DeadlineExceeded)
		time.Sleep(2 * time.Second)
		if synctest.Wait(); holder("late") != "a" {
			t.Error("the late request was not executed")
		}

		granted := func(f Faults) bool {
			key := newOwner()
			h, w := attempt("h", queue.NoQueue), attempt("w", queue.Join)
			h.Key, w.Key = key, key
			_, _ = other.Acquire(t.Context(), h)
			_, _ = s.Acquire(t.Context(), w)
			s.SetFaults(f)
			defer s.SetFaults(Faults{})
			other.End(t.Context(), []queue.End{{Request: h.Request}})
			synctest.Wait()
			return len(r.take(w.Owner)) > 0
		}
		if !granted(Faults{}) || granted(Faults{LoseEvents: true}) || granted(Faults{Delay: time.Second}) {
			t.Error("events do not follow the faults")
		}
		s.Disconnect() // the event that is on its way is lost
		time.Sleep(2 * time.Second)
		if late, n := r.take("w"), r.interruptions(); len(late) > 0 || n != 1 {
			t.Errorf("got events %v and %d interruptions, want one", late, n)
		}
		if s.Connect(); !granted(Faults{}) {
			t.Error("events do not arrive after Connect")
		}
	})
}
