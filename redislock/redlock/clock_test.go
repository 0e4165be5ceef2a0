package redlock

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The votes of nodes whose clocks differ are not counted together.
func TestRedlockClocks(t *testing.T) {
	const hour, ms = time.Hour, time.Millisecond
	for what, c := range map[string]struct {
		offsets []time.Duration
		error   time.Duration
		want    []int
	}{
		"all agree":                     {[]time.Duration{0, time.Second, 0}, ms, []int{0, 1, 2}},
		"one is ahead":                  {[]time.Duration{0, 0, hour}, ms, []int{0, 1}},
		"one is behind":                 {[]time.Duration{-hour, 0, 0}, ms, []int{1, 2}},
		"two of five":                   {[]time.Duration{hour, 0, hour, 0, 0}, ms, []int{1, 3, 4}},
		"two of five, both ways":        {[]time.Duration{hour, 0, -hour, 0, 0}, ms, []int{1, 3, 4}},
		"two that differ, by a third":   {[]time.Duration{-900 * ms, 0, 900 * ms}, ms, []int{0, 1}},
		"it is not certain":             {[]time.Duration{0, 1100 * ms, 0}, 100 * ms, []int{0, 1, 2}},
		"each has a time of its own":    {[]time.Duration{0, hour, 2 * hour}, ms, []int{0}},
		"one that has answered, of one": {[]time.Duration{hour}, ms, []int{0}},
	} {
		offsets := map[int]offset{}
		for i, d := range c.offsets {
			offsets[i] = offset{d - c.error, d + c.error}
		}
		got := agreeing(offsets, len(c.offsets))
		if len(got) != len(c.want) || len(c.want) > 1 && what != "two that differ, by a third" && !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", what, got, c.want)
		}
	}
}

// A node whose clock was stepped, which ends leases there, is not counted. It has a quarantine also when its clock is
// right again, for every client.
func TestRedlockClockStep(t *testing.T) {
	virtual(t, 3, func(t *testing.T, c cluster) {
		holder, ms := c.open(WithRestartDelay(time.Minute))
		other, _ := c.open(WithRestartDelay(time.Minute))
		ms[2].set("acquire", down)
		req := redlockRequest("k", 1)
		req.TTL = 40 * time.Second
		g, err := holder.TryAcquire(t.Context(), req)
		must(t, err)
		step := func(d time.Duration) {
			c.servers[1].mu.Lock()
			defer c.servers[1].mu.Unlock()
			c.servers[1].step = d
		}
		step(time.Hour)
		c.servers[1].empty()
		if g, err := other.TryAcquire(t.Context(), redlockRequest("k", 2)); err == nil {
			t.Errorf("a second holder: token %d after %d", g.Token(), req.TTL)
		}
		if _, err := other.TryAcquire(t.Context(), redlockRequest("k2", 3)); err != nil {
			t.Errorf("the other nodes are a majority: %v", err)
		}
		time.Sleep(time.Second)
		step(0)
		late, _ := c.open(WithRestartDelay(time.Minute))
		_, err = late.TryAcquire(t.Context(), redlockRequest("k", 4))
		if err == nil || !strings.Contains(err.Error(), errQuarantined.Error()) && !strings.Contains(err.Error(), "locked") {
			t.Errorf("when the clock is right again: %v", err)
		}
		if err := g.Renew(t.Context(), req.TTL); err == nil {
			t.Error("renewed by one of three nodes")
		}
		time.Sleep(70 * time.Second)
		synctest.Wait()
		for i := range 2 { // the first finds the quarantine over
			g, err := late.TryAcquire(t.Context(), redlockRequest(fmt.Sprint("k", i+5), 5))
			must(t, err)
			synctest.Wait()
			if n := c.votesFor(fmt.Sprint("k", i+5), redlockRequest("", 5).Owner); n != 3 {
				t.Errorf("after the quarantine: held at %d nodes", n)
			}
			must(t, g.Release(t.Context()))
			synctest.Wait()
		}
	})
}

// status records the reports about a node.
type status struct {
	n       *node
	reports []string
}

func (s *status) report(what string, _ error) { s.reports = append(s.reports, what) }

// The request that was sent last decides whether a node is out, in whatever order requests end.
func TestRedlockOutageByTheLastRequest(t *testing.T) {
	s := &status{n: &node{s: &service{}, name: "a"}}
	r := &Backend{svc: s.n.s}
	s.n.s.nodes = []*node{s.n}
	at := time.Now()
	ends := func(sent int, err error) { s.n.report(err, at.Add(time.Duration(sent))) }
	ends(0, errOverdue)
	r.ReportStatus(s.report) // reports an outage that began before
	ends(1, nil)
	ends(3, errOverdue)
	ends(2, nil) // answered before the node went away
	ends(5, nil)
	ends(4, errOverdue) // before it came back
	ends(6, nil)
	ends(7, errOverdue)
	ends(8, errOverdue)
	const out, back = "redlock node a does not vote", "redlock node a votes again"
	if want := []string{out, back, out, back, out}; !slices.Equal(s.reports, want) {
		t.Errorf("want %q, got %q", want, s.reports)
	}
}
