package queue_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
)

// unordered is a Service with one key that keeps no queue.
type unordered struct {
	mu     sync.Mutex
	holder string
	asked  []string
}

func (*unordered) Unordered() {}

func (u *unordered) Acquire(_ context.Context, a queue.Attempt) (queue.Answer, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asked = append(u.asked, a.Owner)
	if u.holder != "" && u.holder != a.Owner {
		h := backend.Holder{Contender: backend.Contender{Owner: u.holder}}
		return queue.Answer{Sent: time.Now(), Holder: h, Left: ttl, Watch: true}, nil
	}
	u.holder = a.Owner
	return queue.Answer{Sent: time.Now(), Granted: true, Token: uint64(len(u.asked)), Left: a.TTL}, nil
}

func (u *unordered) End(_ context.Context, ends []queue.End) []queue.Ended {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make([]queue.Ended, len(ends))
	for i, e := range ends {
		if all[i].Held = u.holder == e.Owner; all[i].Held {
			u.holder = ""
		}
	}
	return all
}

func (*unordered) Renew(_ context.Context, holds []queue.Hold) []queue.Renewed {
	return make([]queue.Renewed, len(holds))
}
func (*unordered) Pass(context.Context, string, bool) (queue.Passed, error) {
	return queue.Passed{}, nil
}
func (*unordered) Close(context.Context) error          { return nil }
func (*unordered) Use(string) func()                    { return func() {} }
func (*unordered) Listening(string) bool                { return true }
func (*unordered) Listen(context.Context, string) error { return nil }
func (*unordered) Doubt(string)                         {}

func (u *unordered) askedBy(owner string) (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, o := range u.asked {
		if o == owner {
			n++
		}
	}
	return n
}

// TestUnordered: without a queue at the service an attempt that comes while others of its process wait sends no request
// before them, also if the key is free then.
func TestUnordered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &unordered{}
		b := queue.New(u)
		g, err := b.TryAcquire(t.Context(), request(backend.Share{}))
		if err != nil {
			t.Fatal(err)
		}
		p := process{Backend: b}
		first := p.waits(t, t.Context(), backend.Share{})
		release(t, g)
		req := request(backend.Share{})
		second := p.waitsFor(t, t.Context(), req)
		if n := u.askedBy(req.Owner); n != 0 {
			t.Errorf("an attempt behind a waiter, of a free key: want no request, got %d", n)
		}
		b.Interrupted(request(backend.Share{}).Key)
		g = granted(t, first, time.Millisecond)
		release(t, g)
		b.Interrupted(request(backend.Share{}).Key)
		release(t, granted(t, second, time.Millisecond))
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
