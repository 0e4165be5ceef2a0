package queuetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend/queue"
)

// inMemory returns the Harness of a Server. wrap may change a Service.
func inMemory(wrap func(*Service, queue.Events) (queue.Service, queue.Events)) Harness {
	server := NewServer()
	return Harness{
		Virtual: true,
		Open: func(_ testing.TB, events queue.Events) queue.Service {
			s := server.Process()
			if wrap == nil {
				s.Start(events)
				return s
			}
			wrapped, events := wrap(s, events)
			s.Start(events)
			return wrapped
		},
		Disconnect: func(_ testing.TB, s queue.Service) func() {
			c := s.(interface {
				Connect()
				Disconnect()
			})
			c.Disconnect()
			return c.Connect
		},
	}
}

func TestDifferential(t *testing.T) { Differential(t, inMemory(nil), 500) }

// A process may need some time to restore its connection.
func TestDifferentialOfSlowConnections(t *testing.T) {
	h := inMemory(nil)
	disconnect := h.Disconnect
	h.Disconnect = func(t testing.TB, s queue.Service) func() {
		connect := disconnect(t, s)
		return func() { time.AfterFunc(5*time.Millisecond, connect) }
	}
	Differential(t, h, 200)
}

// mistaken is a Service with a mistake.
type mistaken struct {
	*Service
	attempt func(*queue.Attempt)
	answer  func(*queue.Answer)
	hold    func(*queue.Hold)
	renewed func(*queue.Renewed)
	end     func(*queue.End)
}

func (m mistaken) Acquire(ctx context.Context, a queue.Attempt) (queue.Answer, error) {
	if m.attempt != nil {
		m.attempt(&a)
	}
	answer, err := m.Service.Acquire(ctx, a)
	if m.answer != nil {
		m.answer(&answer)
	}
	return answer, err
}

func (m mistaken) Renew(ctx context.Context, holds []queue.Hold) []queue.Renewed {
	if m.hold != nil {
		m.hold(&holds[0])
	}
	all := m.Service.Renew(ctx, holds)
	if m.renewed != nil {
		m.renewed(&all[0])
	}
	return all
}

func (m mistaken) End(ctx context.Context, ends []queue.End) []queue.Ended {
	if m.end != nil {
		m.end(&ends[0])
	}
	return m.Service.End(ctx, ends)
}

type mistakenEvents struct{ queue.Events }

func (mistakenEvents) Asked(_, _ string) {}

// The Differential finds mistakes, and shows them by a few operations.
func TestDifferentialFinds(t *testing.T) {
	for name, mistake := range map[string]mistaken{
		"late requests are executed":     {end: func(e *queue.End) { e.Late = false }},
		"Exactly is ignored":             {hold: func(h *queue.Hold) { h.Exactly = false }},
		"a renewal hides its grants":     {renewed: func(r *queue.Renewed) { r.Pass = 0 }},
		"an attempt that tries is asked": {answer: func(a *queue.Answer) { a.Ask = 0 }},
		"Expect does not enter the queue": {attempt: func(a *queue.Attempt) {
			if a.Mode == queue.Expect {
				a.Mode = queue.NoQueue
			}
		}},
		"Asked is not sent": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := inMemory(func(s *Service, events queue.Events) (queue.Service, queue.Events) {
					m := mistake
					m.Service = s
					if name == "Asked is not sent" {
						events = mistakenEvents{events}
					}
					return m, events
				})
				failed, _ := newDiffer(t, h, rand.Uint64()).runAll(0, 500)
				if failed == nil {
					t.Fatal("it was not found")
				}
				if n := len(failed.seq.ops); n > 12 {
					t.Errorf("%d operations are left", n)
				}
				t.Logf("%d operations:\n%s", len(failed.seq.ops), failed)
			})
		})
	}
}

// failing is a Service whose requests Pass fail after an answer for the key.
type failing struct {
	*Service
	answered sync.Map // keys
}

func (f *failing) Acquire(ctx context.Context, a queue.Attempt) (queue.Answer, error) {
	r, err := f.Service.Acquire(ctx, a)
	if r.Now > 0 {
		f.answered.Store(a.Key, true)
	}
	return r, err
}

func (f *failing) Pass(ctx context.Context, key string, leaves bool) (queue.Passed, error) {
	if _, ok := f.answered.Load(key); ok {
		return queue.Passed{}, errors.New("no connection")
	}
	return f.Service.Pass(ctx, key, leaves)
}

// The Differential shows the error of a Service.
func TestDifferentialShowsErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := inMemory(func(s *Service, events queue.Events) (queue.Service, queue.Events) {
			return &failing{Service: s}, events
		})
		failed, _ := newDiffer(t, h, rand.Uint64()).runAll(0, 500)
		if failed == nil || !strings.Contains(failed.failure, "no connection") {
			t.Errorf("want the error, got %+v", failed)
		}
	})
}
