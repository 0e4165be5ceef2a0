package redlock

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
)

func TestRedlockBreak(t *testing.T) {
	virtual(t, 3, func(t *testing.T, c cluster) {
		r, _ := c.open()
		lost := make(chan error, 9)
		req := redlockRequest("k", 1)
		req.OnLost = func(err error) { lost <- err }
		g, err := r.TryAcquire(t.Context(), req)
		must(t, err)
		synctest.Wait()
		h, err := r.Break(t.Context(), "k", "")
		if err != nil || h == nil || h.Owner != req.Owner {
			t.Errorf("broke %v, %v", h, err)
		}
		synctest.Wait()
		if len(lost) == 0 {
			t.Error("the holder was not notified")
		}
		if err := g.Release(t.Context()); !errors.Is(err, backend.ErrLost) {
			t.Errorf("its release: %v", err)
		}
		if h, err := r.Break(t.Context(), "k", ""); h != nil || err != nil {
			t.Errorf("of a free key: %v, %v", h, err)
		}
	})
}

// Requests to a node that hangs do not pile up there, and leave nothing to clean up.
func TestRedlockHungNode(t *testing.T) {
	virtual(t, 3, func(t *testing.T, c cluster) {
		r, ms := c.open()
		hangs := func(f fault) {
			ms[2].set("acquire", f)
			ms[2].set("end", f)
		}
		hangs(lostRequest)
		for n := range 200 {
			g, err := r.TryAcquire(t.Context(), redlockRequest("k", n+1))
			must(t, err)
			time.Sleep(100 * time.Millisecond)
			must(t, g.Release(t.Context()))
			synctest.Wait()
		}
		if n := ms[2].count("acquire"); n > 80 {
			t.Errorf("%d requests to acquire in 20 s, want at most 4 at a time", n)
		}
		if n := ms[2].count("end"); n > 400 {
			t.Errorf("%d requests to end 200 attempts in 20 s, want one of each, and at most 4 at a time besides", n)
		}
		hangs(none)
		time.Sleep(3 * time.Second)
		for n := range 2 {
			g, err := r.TryAcquire(t.Context(), redlockRequest("k2", n+1000))
			must(t, err)
			synctest.Wait()
			if n == 1 && c.votesFor("k2", redlockRequest("", 1001).Owner) != 3 {
				t.Error("the node is not asked when it is back")
			}
			must(t, g.Release(t.Context()))
			synctest.Wait()
		}
	})
}

// An end that is asked for again adds nothing to what the nodes have still to end.
func TestEndsAgain(t *testing.T) {
	virtual(t, 3, func(t *testing.T, c cluster) {
		r, ms := c.open()
		for _, m := range ms {
			m.set("end", lostRequest)
		}
		req := redlockRequest("k", 1)
		g, err := r.TryAcquire(t.Context(), req)
		must(t, err)
		const times = 20
		for range times {
			if err := g.Release(t.Context()); err == nil {
				t.Fatal("released, and no node has answered")
			}
		}
		before := ms[0].count("end")
		time.Sleep(5 * time.Second)
		if n := ms[0].count("end") - before; n > 10 {
			t.Errorf("%d requests to a node in 5 s to end one attempt", n)
		}
	})
}

// An attempt does not wait on when so many nodes may still execute a release of it that it can get no quorum any more.
func TestReleasesWithoutAnAnswer(t *testing.T) {
	virtual(t, 3, func(t *testing.T, c cluster) {
		r, ms := c.open()
		for i := range ms {
			c.taken(i, "k", "another", time.Hour)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := r.Acquire(t.Context(), redlockRequest("k", 1))
			ended <- err
		}()
		synctest.Wait()
		for _, m := range ms {
			m.slow(10 * time.Millisecond)
		}
		for i := range 2 {
			ms[i].slow(0) // it grants the key before the others refuse it
			ms[i].set("end", lostReply)
			c.servers[i].empty()
			ms[i].announce("k", "another")
			time.Sleep(5 * time.Second)
			c.taken(i, "k", "another", time.Hour)
			ms[i].set("end", none)
			ms[i].slow(10 * time.Millisecond)
		}
		ms[2].announce("k", "another") // so that it asks
		time.Sleep(time.Second)
		select {
		case err := <-ended:
			if !errors.Is(err, backend.ErrUncertain) {
				t.Errorf("want ErrUncertain, got %v", err)
			}
		default:
			t.Error("it waits")
		}
	})
}
