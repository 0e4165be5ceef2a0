package record_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/record"
)

// slow is a memory that answers after a millisecond, and counts the requests.
type slow struct {
	*memory
	requests atomic.Int64
}

func (s *slow) Read(ctx context.Context, key string) (record.Item, error) {
	s.requests.Add(1)
	time.Sleep(time.Millisecond)
	return s.memory.Read(ctx, key)
}

func (s *slow) Write(ctx context.Context, key string, value []byte, version string, ttl time.Duration) (string, error) {
	s.requests.Add(1)
	time.Sleep(time.Millisecond)
	return s.memory.Write(ctx, key, value, version, ttl)
}

// Of many attempts that come at once to a held lock one asks: each request may need a connection of its own.
func TestManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{memory: newMemory()}
		take(t, record.New(s, record.Options{}), "a")
		q := &record.Queue{Locks: record.New(s, record.Options{}), Poll: poll}
		s.requests.Store(0)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		var waiting atomic.Int64
		var all sync.WaitGroup
		for i := range 500 {
			all.Go(func() {
				req := request(strconv.Itoa(i))
				req.OnWait = func(l *backend.LockedError) {
					waiting.Add(1)
					if l.Holder.Owner != "a" {
						t.Errorf("waits for %+v", l.Holder)
					}
				}
				if _, err := q.Acquire(ctx, req); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Acquire of a held lock: want the error of the context, got %v", err)
				}
			})
		}
		time.Sleep(2 * time.Second)
		if n := waiting.Load(); n != 500 {
			t.Errorf("%d attempts know that they wait, want 500", n)
		}
		all.Wait()
		if n := s.requests.Load(); n > 3 {
			t.Errorf("%d requests, want one, and that of the first waiter", n)
		}
	})
}

// silent is a service that does not answer: each request fails after a second.
type silent struct{}

func (silent) Read(context.Context, string) (record.Item, error) {
	time.Sleep(time.Second)
	return record.Item{}, errors.New("no answer")
}

func (silent) Write(context.Context, string, []byte, string, time.Duration) (string, error) {
	panic("nothing was read")
}

// If the request of the first attempt fails, the others do not ask one after the other.
func TestManyAtOnceInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &record.Queue{Locks: record.New(silent{}, record.Options{}), Poll: poll}
		start := time.Now()
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				if _, err := q.Acquire(t.Context(), request(strconv.Itoa(i))); err == nil || errors.Is(err, backend.ErrLocked) {
					t.Errorf("Acquire without an answer: want the error of the service, got %v", err)
				}
			})
		}
		all.Wait()
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("20 attempts took %v, want the time of two", took)
		}
	})
}

// Of many attempts that come at once to a free lock one is granted, and one asks until it is free again.
func TestManyAtOnceAtAFreeLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{memory: newMemory()}
		q := &record.Queue{Locks: record.New(s, record.Options{}), Poll: poll}
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		var granted atomic.Int64
		var all sync.WaitGroup
		for i := range 500 {
			all.Go(func() {
				if _, err := q.Acquire(ctx, request(strconv.Itoa(i))); err == nil {
					granted.Add(1)
				}
			})
		}
		all.Wait()
		if n := granted.Load(); n != 1 {
			t.Errorf("%d attempts hold the lock, want 1", n)
		}
		if n := s.requests.Load(); n > 4 {
			t.Errorf("%d requests, want two of the attempt that is granted, and one of the first waiter", n)
		}
	})
}

// If the attempt that asks gives up before the answer, one of the others asks, and not all of them.
func TestManyAtOnceBehindOneThatGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{memory: newMemory()}
		take(t, record.New(s, record.Options{}), "a")
		q := &record.Queue{Locks: record.New(impatient{s}, record.Options{}), Poll: poll}
		s.requests.Store(0)
		var all sync.WaitGroup
		patient, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		for i := range 500 {
			ctx := patient
			if i < 3 {
				short, end := context.WithTimeout(ctx, time.Duration(i+1)*100*time.Microsecond)
				defer end()
				ctx = short
			}
			all.Go(func() {
				if _, err := q.Acquire(ctx, request(strconv.Itoa(i))); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Acquire of a held lock: want the error of the context, got %v", err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if n := s.requests.Load(); n > 6 {
			t.Errorf("%d requests, want three of those that gave up, one after them, and that of the first waiter", n)
		}
	})
}

// impatient is a service whose client waits for an answer no longer than its context.
type impatient struct{ *slow }

func (s impatient) Read(ctx context.Context, key string) (record.Item, error) {
	s.requests.Add(1)
	select {
	case <-time.After(time.Millisecond):
		return s.memory.Read(ctx, key)
	case <-ctx.Done():
		return record.Item{}, ctx.Err()
	}
}
