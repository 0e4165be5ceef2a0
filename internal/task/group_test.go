package task_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/interlock-go/lock/internal/task"
)

var errStopped = errors.New("stopped")

func TestWaitEndsWithItsCaller(t *testing.T) {
	g := task.New()
	ctx, cancel := context.WithCancel(t.Context())
	a, b := g.BeginWait(ctx), g.BeginWait(t.Context())
	cancel()
	if a.Context.Err() == nil || b.Context.Err() != nil {
		t.Fatalf("errors %v and %v: want that the first has ended", a.Context.Err(), b.Context.Err())
	}
	a.Done()
	b.Done()
	if b.Context.Err() == nil {
		t.Error("the context of a task that is done goes on")
	}
}

// Waits that begin and end while closing begins have either not begun or end with its cause.
func TestStopEndsWaits(t *testing.T) {
	for range 20 {
		g := task.New()
		var all sync.WaitGroup
		begun := make(chan struct{}, 8)
		for i := range 8 {
			all.Go(func() {
				for w := g.BeginWait(t.Context()); w != nil; w = g.BeginWait(t.Context()) {
					select {
					case begun <- struct{}{}:
					default:
					}
					if i%2 == 0 { // else the task is done by itself
						<-w.Context.Done()
						if err := context.Cause(w.Context); !errors.Is(err, errStopped) {
							t.Errorf("the cause is %v, want that of Stop", err)
						}
					}
					w.Done()
				}
			})
		}
		<-begun
		g.Stop(errStopped)
		all.Wait()
		select {
		case <-g.Idle():
			t.Fatal("the group is idle before the caller of Stop is done")
		default:
		}
		g.Done()
		<-g.Idle()
	}
}

// BenchmarkWait: a task begins and ends beside others, which is what each Lock does.
// AfterFunc is what BeginWait replaces.
func BenchmarkWait(b *testing.B) {
	for _, others := range []int{16, 2000} {
		b.Run(fmt.Sprintf("BeginWait/%d", others), func(b *testing.B) {
			g, ring := task.New(), make([]*task.Wait, others)
			for i := range ring {
				ring[i] = g.BeginWait(context.Background())
				_ = ring[i].Context.Done()
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i = (i + 1) % others { // the oldest ends, as in a queue
				ring[i].Done()
				ring[i] = g.BeginWait(context.Background())
				_ = ring[i].Context.Done()
			}
		})
		b.Run(fmt.Sprintf("AfterFunc/%d", others), func(b *testing.B) {
			g, ring := task.New(), make([]func(), others)
			begin := func() func() {
				g.Begin()
				ctx, cancel := context.WithCancelCause(context.Background())
				stop := context.AfterFunc(g.Closing(), func() { cancel(errStopped) })
				_ = ctx.Done()
				return func() { stop(); cancel(nil); g.Done() }
			}
			for i := range ring {
				ring[i] = begin()
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i = (i + 1) % others {
				ring[i]()
				ring[i] = begin()
			}
		})
	}
}
