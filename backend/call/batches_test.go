package call_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
)

// server answers the batches that it gets after a time.
type server struct {
	life *call.Life
	took time.Duration
	fail error

	mu        sync.Mutex
	got       [][]int
	deadlines []time.Time
}

func (s *server) batches(most, size int) *call.Batches[int, string] {
	return call.NewBatches(s.life, most, size, 100*time.Microsecond, func(ctx context.Context, batch []*call.Member[int, string]) bool {
		s.mu.Lock()
		var all []int
		for _, m := range batch {
			m.Sending().Write()
			all = append(all, m.Request)
		}
		d, _ := ctx.Deadline()
		s.got, s.deadlines = append(s.got, all), append(s.deadlines, d)
		took, fail := s.took, s.fail
		s.mu.Unlock()
		time.Sleep(took)
		for _, m := range batch {
			m.End(fmt.Sprint(m.Request), fail)
		}
		return fail == nil
	})
}

// sent returns the batches that were sent since the last call.
func (s *server) sent() [][]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.got
	s.got = nil
	return got
}

// becomes changes what the server does.
func (s *server) becomes(took time.Duration, fail error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took, s.fail = took, fail
}

// do sends the requests from to to, one after the other, and returns when all are on their way or wait.
func do(t *testing.T, wg *sync.WaitGroup, b *call.Batches[int, string], from, to int) {
	for n := from; n <= to; n++ {
		wg.Go(func() {
			if got, err := b.Do(t.Context(), n); err != nil || got != fmt.Sprint(n) {
				t.Errorf("request %d: %q, %v", n, got, err)
			}
		})
		synctest.Wait()
	}
}

// Two requests are sent at once, and those that are made meanwhile together.
func TestTogether(t *testing.T) {
	for size, want := range map[int]string{
		100: "[[1] [2] [3 4 5 6 7]]", 3: "[[1] [2] [3 4 5] [6 7]]",
		1: "[[1] [2] [3] [4] [5] [6] [7]]", // waiting gains nothing: only most limits them
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{life: call.NewLife(), took: time.Microsecond}
			b := s.batches(10, size)
			var wg sync.WaitGroup
			do(t, &wg, b, 1, 7)
			got := s.sent()
			if size == 1 && len(got) != 7 {
				t.Errorf("size 1: %v were sent at once", got)
			}
			wg.Wait()
			got = append(got, s.sent()...)
			slices.SortFunc(got, slices.Compare) // batches that begin at the same time
			if got := fmt.Sprint(got); got != want {
				t.Errorf("size %d: got %v, want %v", size, got, want)
			}
			if err := s.life.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// On a slow way more batches are on their way, so that a request waits for 100 µs and not for the way.
func TestSlowWay(t *testing.T) {
	for took, want := range map[time.Duration]int{50 * time.Microsecond: 2, 500 * time.Microsecond: 5, time.Second: 10} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{life: call.NewLife(), took: took}
			defer s.life.Stop()
			b := s.batches(10, 100)
			var wg sync.WaitGroup
			do(t, &wg, b, 0, 0)
			wg.Wait()
			s.sent()
			do(t, &wg, b, 1, 20)
			if got := len(s.sent()); got != want {
				t.Errorf("%v: %d batches are on their way, want %d", took, got, want)
			}
			wg.Wait()

			// A server that refuses at once is not fast.
			refused := errors.New("refused")
			s.becomes(0, refused)
			if _, err := b.Do(t.Context(), 0); !errors.Is(err, refused) {
				t.Error(err)
			}
			s.becomes(took, nil)
			s.sent()
			do(t, &wg, b, 1, 20)
			if got := len(s.sent()); got != want {
				t.Errorf("%v: %d batches after a failure, want %d", took, got, want)
			}
			wg.Wait()
		})
	}
}

// A request waits for at most 20 ms for those on their way, which may never return.
func TestOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{life: call.NewLife(), took: time.Hour}
		defer s.life.Stop()
		b := s.batches(3, 100)
		var wg sync.WaitGroup
		do(t, &wg, b, 1, 4)
		for _, want := range []string{"[[1] [2]]", "[[3 4]]"} {
			if got := fmt.Sprint(s.sent()); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
			time.Sleep(20 * time.Millisecond)
			synctest.Wait()
		}
		do(t, &wg, b, 5, 5)
		time.Sleep(time.Minute)
		if got := s.sent(); len(got) > 0 {
			t.Errorf("%v are sent beyond the most", got)
		}
		wg.Wait()
	})
}

// A request that waits for its batch is withdrawn with its context. One in a batch may be executed.
func TestContextOfAMemberEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{life: call.NewLife(), took: time.Hour}
		b := s.batches(2, 100)
		var wg sync.WaitGroup
		do(t, &wg, b, 1, 2)
		ended := func(n int) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := b.Do(ctx, n)
			return err
		}
		if err := ended(3); !errors.Is(err, context.DeadlineExceeded) || backend.OutcomeUnknown(err) {
			t.Errorf("it waited: got %v", err)
		}
		wg.Wait()
		if got := fmt.Sprint(s.sent()); got != "[[1] [2]]" {
			t.Errorf("it waited alone: got %v", got)
		}
		do(t, &wg, b, 1, 2)
		if err := ended(3); backend.OutcomeUnknown(err) {
			t.Errorf("it waited: got %v", err)
		}
		do(t, &wg, b, 4, 5)
		time.Sleep(time.Hour - 90*time.Second)
		var late error
		wg.Go(func() { late = ended(6) })
		wg.Wait()
		if !errors.Is(late, context.DeadlineExceeded) || !errors.Is(late, backend.ErrUncertain) {
			t.Errorf("it was in a batch: got %v", late)
		}
		if got := fmt.Sprint(s.sent()); got != "[[1] [2] [4 5 6]]" {
			t.Errorf("got %v", got)
		}
		if err := s.life.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := b.Do(t.Context(), 7); !errors.Is(err, backend.ErrClosed) {
			t.Errorf("after Close: got %v", err)
		}
	})
}

// The deadline of a batch is the latest, and none if a request has none.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{life: call.NewLife(), took: time.Second}
		defer s.life.Stop()
		b := s.batches(1, 3)
		var wg sync.WaitGroup
		want := []time.Time{{}}
		do(t, &wg, b, 1, 1)
		for n, after := range []time.Duration{time.Hour, 3 * time.Hour, 2 * time.Hour, time.Hour, 0} {
			ctx := t.Context()
			if after > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, after)
				defer cancel()
			}
			if d, _ := ctx.Deadline(); n == 1 {
				want = append(want, d, time.Time{})
			}
			wg.Go(func() { _, _ = b.Do(ctx, n) })
			synctest.Wait()
		}
		wg.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if !slices.Equal(s.deadlines, want) {
			t.Errorf("got %v, want %v", s.deadlines, want)
		}
	})
}
