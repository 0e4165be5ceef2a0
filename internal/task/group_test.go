package task_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/interlock-go/lock/internal/task"
)

var errStopped = errors.New("stopped")

func TestWaitEndsWithItsCaller(t *testing.T) {
	g := task.New()
	ctx, cancel := context.WithCancel(t.Context())
	var a, b task.Wait
	if !g.BeginWait(ctx, &a) || !g.BeginWait(t.Context(), &b) {
		t.Fatal("refused before Stop")
	}
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

// Waits that begin and end while closing begins have either not begun or end with it.
func TestStopEndsWaits(t *testing.T) {
	for range 20 {
		g := task.New()
		var all sync.WaitGroup
		begun := make(chan struct{}, 8)
		for i := range 8 {
			all.Go(func() {
				for w := new(task.Wait); g.BeginWait(t.Context(), w); w = new(task.Wait) {
					select {
					case begun <- struct{}{}:
					default:
					}
					if i%2 == 0 { // else the task is done by itself
						<-w.Context.Done()
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
func BenchmarkWait(b *testing.B) {
	for _, others := range []int{16, 2000} {
		b.Run(strconv.Itoa(others), func(b *testing.B) {
			g, ring := task.New(), make([]task.Wait, others)
			begin := func(w *task.Wait) {
				*w = task.Wait{}
				if !g.BeginWait(context.Background(), w) {
					b.Fatal("refused before Stop")
				}
				_ = w.Context.Done()
			}
			for i := range ring {
				begin(&ring[i])
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i = (i + 1) % others { // the oldest ends, as in a queue
				ring[i].Done()
				begin(&ring[i])
			}
		})
	}
}
