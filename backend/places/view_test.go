package places_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places/placestest"
)

// counted counts the requests of processes by method.
type counted struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counted) of(ps []*process) {
	for _, p := range ps {
		p.svc.Inject(func(method string) placestest.Fault {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.n[method]++
			return placestest.None
		})
	}
}

func (c *counted) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n
	c.n = map[string]int{}
	return n
}

// work lets each process lock and unlock with some workers, each so many times.
func work(t *testing.T, ps []*process, workers, cycles int) {
	t.Helper()
	var all sync.WaitGroup
	for _, p := range ps {
		for range workers {
			all.Go(func() {
				for range cycles {
					g, err := p.Acquire(t.Context(), request(backend.Share{}))
					if err != nil {
						t.Error(err)
						return
					}
					release(t, g)
				}
			})
		}
	}
	all.Wait()
}

func viewers(t *testing.T, n int, f func(t *testing.T, s *placestest.Server, ps []*process, c *counted)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := placestest.NewServer()
		s.Views = true
		var ps []*process
		for range n {
			ps = append(ps, open(t, s))
		}
		c := &counted{n: map[string]int{}}
		c.of(ps)
		f(t, s, ps, c)
	})
}

// Lines of few processes follow their queue. That is one request at the beginning, and a cycle is two.
func TestFewProcesses(t *testing.T) {
	viewers(t, 4, func(t *testing.T, s *placestest.Server, ps []*process, c *counted) {
		work(t, ps, 1, 20) // the lines begin
		time.Sleep(500 * time.Millisecond)
		c.take()
		work(t, ps, 4, 20)
		n := c.take()
		if n["View"]+n["Read"]+n["Watch"]+n["Check"] > 0 || n["Put"] != 320 || n["Remove"] != 320 {
			t.Errorf("320 cycles: %v", n)
		}
		time.Sleep(2 * time.Second)
		if s.Watches() != 0 {
			t.Error("the queue of a lock that is not used is still followed")
		}
		free(t, s)
	})
}

// Lines of many processes watch the places before theirs. When few are left, those of new waiters follow the queue.
func TestManyProcesses(t *testing.T) {
	viewers(t, 60, func(t *testing.T, s *placestest.Server, ps []*process, c *counted) {
		work(t, ps, 1, 20)
		c.take()
		work(t, ps, 1, 20)
		if n := c.take(); n["Watch"] < 600 || n["View"] > 200 {
			t.Errorf("1200 cycles of 60 processes: %v", n)
		}
		time.Sleep(5 * time.Second)
		work(t, ps[:2], 2, 20)
		c.take()
		work(t, ps[:2], 2, 20)
		if n := c.take(); n["View"]+n["Watch"] > 0 {
			t.Errorf("80 cycles of two processes: %v", n)
		}
		free(t, s)
	})
}

// A waiter whose place has ended puts another one at once, wherever it is in the line.
func TestFollowedPlaceEnds(t *testing.T) {
	viewers(t, 2, func(t *testing.T, s *placestest.Server, ps []*process, _ *counted) {
		g := try(t, ps[0], request(backend.Share{}))
		var all []*attempt
		for range 3 {
			all = append(all, acquire(t, ps[1], request(backend.Share{})))
			all[len(all)-1].waiting(t)
		}
		time.Sleep(time.Second)
		order := s.Queue(key).Places[3].Order
		s.Delete(all[1].req.Owner)
		time.Sleep(time.Second)
		if q := s.Queue(key).Places; len(q) != 4 || q[3].Owner != all[1].req.Owner || q[3].Order <= order {
			t.Errorf("want another place behind the others, got %+v", q)
		}
		for _, a := range []*attempt{all[0], all[2], all[1]} {
			release(t, g)
			time.Sleep(time.Second)
			g = a.granted(t)
		}
		release(t, g)
		free(t, s)
	})
}

// An attempt that holds at once does not report that it waits, also while the line of its key follows the queue.
func TestRestingLine(t *testing.T) {
	viewers(t, 2, func(t *testing.T, s *placestest.Server, ps []*process, _ *counted) {
		work(t, ps, 2, 5)
		g := try(t, ps[0], request(backend.Reader))
		time.Sleep(10 * time.Millisecond)
		if s.Watches() == 0 {
			t.Fatal("no line follows the queue")
		}
		a := acquire(t, ps[1], request(backend.Reader))
		release(t, a.granted(t))
		if n := a.waits.Load(); n > 0 {
			t.Errorf("a reader beside a reader reported %d times that it waits", n)
		}
		release(t, g)
		free(t, s)
	})
}
