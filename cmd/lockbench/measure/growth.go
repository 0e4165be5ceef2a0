package measure

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/interlock-go/lock/backend"
)

// The kinds of growth: each measures one cost over a number N, once for each N. A cost
// that does not depend on N is flat.
const (
	Waiters       Kind = "waiters"        // N workers of several clients on one lock, which all wait
	IdleProcesses Kind = "idle-processes" // 16 workers beside N other clients that have waited once
	Dead          Kind = "dead"           // N dead waiters of one process, and of N processes
	Names         Kind = "names"          // N names that are used once
	Outage        Kind = "outage"         // N goroutines that try to lock during an outage
	Held          Kind = "held"           // N leases that one client holds
)

// Growths are all kinds of growth.
var Growths = []Kind{Waiters, IdleProcesses, Dead, Names, Outage, Held}

// Limits of a measurement of growth.
const (
	waitLimit  = time.Minute      // of each Lock
	queueLimit = 20 * time.Second // until all workers wait
	queueStep  = time.Second / 4  // between two looks at the queue
	drainLimit = 3 * time.Second  // for the workers that still wait at the end
	useLimit   = time.Minute      // for using all names once
)

// growths describes each kind of growth: what N is, its default and greatest values, the
// default TTL and pause, and the kind in words.
var growths = map[Kind]struct {
	unit        string
	numbers     []int
	least, most int
	ttl, settle time.Duration
	about       string
}{
	Waiters: {"waiters", []int{16, 500, 2000, 10_000}, 2, 20_000, 0, 0,
		"N workers of up to 4 clients on one lock, all in the queue, without hold and pause"},
	IdleProcesses: {"idle clients", []int{0, 400}, 0, 4000, 0, 65 * time.Second,
		"16 workers of 4 clients on one lock, beside N other clients that have waited once"},
	Dead: {"dead waiters", []int{2, 20}, 1, 200, 10 * time.Second, 0,
		"from Unlock until a waiter has the lock behind N dead waiters, killed (SIGKILL) or stopped (SIGSTOP)"},
	Names: {"names", []int{100_000}, 1, 1_000_000, time.Minute, 0,
		"N locks are used once; rows, keys, nodes or files that are left after twice the retention"},
	Outage: {"goroutines", []int{2000}, 1, 20_000, 10 * time.Second, 0,
		"N goroutines call Lock with 100ms each while the service is silent for 0.6 TTL, beside 100 leases"},
	Held: {"leases", []int{20_000}, 1, 100_000, 10 * time.Second, 0,
		"N leases that one client holds for six TTLs"},
}

// Numbers returns the default numbers of a kind of growth, nil for another kind.
func Numbers(kind Kind) []int { return growths[kind].numbers }

// NewGrowth returns a scenario of growth. ttl and settle replace the defaults of the kind
// if they are not negative.
func NewGrowth(kind Kind, n int, d, ttl, settle time.Duration) (Scenario, error) {
	g := growths[kind]
	s := Scenario{Kind: kind, N: n, For: d, Clients: 4, TTL: g.ttl, Settle: g.settle}
	if ttl >= 0 && s.TTL > 0 && kind != Names { // the least retention is a minute
		s.TTL = ttl
	}
	if settle >= 0 && s.Settle > 0 {
		s.Settle = settle
	}
	switch kind {
	case Waiters:
		s.Workers, s.Clients = n, min(n, 4)
	case IdleProcesses:
		s.Workers = 16
	}
	switch {
	case n < g.least || n > g.most:
		return s, fmt.Errorf("%d %s in scenario %s: want %d to %d", n, g.unit, kind, g.least, g.most)
	case s.For < 10*time.Millisecond:
		return s, fmt.Errorf("measuring for %v: want 10ms or more", s.For)
	case g.ttl > 0 && s.TTL < 500*time.Millisecond:
		return s, fmt.Errorf("TTL %v in scenario %s: want 500ms or more", s.TTL, kind)
	}
	return s, nil
}

func (s Scenario) growth() bool { return slices.Contains(Growths, s.Kind) }

// of reports whether the scenario can be measured on a target.
func (s Scenario) of(t Target) bool {
	scheme, _, _ := strings.Cut(t.URL, ":")
	switch {
	case t.Alone:
		return s.Kind == Uncontended || s.Kind == Many
	case s.Kind == Held:
		return t.URL != ""
	case s.Kind == Dead:
		return t.URL != "" && scheme != "mem"
	case s.Kind == Outage:
		return ports[scheme] != ""
	case s.Kind == Names:
		return t.Stored != nil
	}
	return true
}

// probes measure the kinds of growth that are no closed loop of workers.
var probes = map[Kind]func(context.Context, *Measurement, Target, Scenario) error{
	Dead: probeDead, Names: probeNames, Outage: probeOutage, Held: probeHeld,
}

// Figure is one result of a measurement of growth.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// The figures of closed loops. Those of probes are named where they are measured.
const (
	perSecond = "cycles a second"
	perCycle  = "operations a cycle"
	written   = "bytes logged a cycle"
	failures  = "failures"
)

// relative has the figures that are also shown as multiples of that of the least N.
var relative = []string{perSecond, perCycle, written}

func (m *Measurement) figure(name string, v float64) {
	if !math.IsNaN(v) {
		m.Figures = append(m.Figures, Figure{name, v})
	}
}

// addCycles adds the figures of a closed loop. The caller holds the mutex of the meter.
func (m *Measurement) addCycles(bytes *int64) {
	var n float64
	for _, a := range m.Acquired {
		n += float64(a)
	}
	m.figure(perSecond, n/m.Took.Seconds())
	if m.Operations != nil && n > 0 {
		m.figure(perCycle, float64(*m.Operations)/n)
	}
	if bytes != nil && n > 0 {
		m.figure(written, float64(*bytes)/n)
	}
}

// fillQueue keeps the lock held until all workers wait, at most for queueLimit, and then
// unlocks it. If the client cannot count waiters, fillQueue waits for a time that suits
// their number.
func (r *meter) fillQueue(ctx context.Context, c Client, held Lease, name string) error {
	w, counts := c.(interface {
		Waiting(ctx context.Context, name string) (int, error)
	})
	end, last := time.Now().Add(queueLimit), -1
	if !counts {
		end = time.Now().Add(time.Second/2 + time.Duration(r.scen.Workers)*time.Millisecond/2)
	}
	for grown := time.Now(); time.Now().Before(end); {
		if err := pause(ctx, queueStep); err != nil {
			break
		}
		if !counts {
			continue
		}
		n, err := w.Waiting(ctx, name)
		switch {
		case err != nil:
			continue
		case n > last:
			last, grown = n, time.Now()
		}
		// Some services show a bounded number of waiters.
		if n >= r.scen.Workers || time.Since(grown) > 2*time.Second {
			break
		}
	}
	return held.Unlock(context.WithoutCancel(ctx))
}

// openIdle opens N clients, lets each wait for a lock once, and pauses. closeAll is never
// nil.
func openIdle(ctx context.Context, t Target, s Scenario) (closeAll func(), err error) {
	clients := make([]Client, s.N)
	closeAll = func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		var all sync.WaitGroup
		for _, c := range clients {
			if c != nil {
				all.Go(func() { _ = c.Close(closing) }) // they hold nothing
			}
		}
		all.Wait()
	}
	if s.N == 0 {
		return closeAll, nil
	}
	name := "bench-idle-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	err = inParallel(ctx, s.N, 16, func(ctx context.Context, i int) (err error) {
		if clients[i], err = t.Open(ctx); err != nil {
			return err
		}
		// As many as wait at a time take turns at a lock.
		l, err := clients[i].Lock(ctx, name)
		if err != nil {
			return err
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
		return l.Unlock(ctx)
	})
	if err == nil {
		err = pause(ctx, s.Settle)
	}
	return closeAll, err
}

// inParallel calls f for 0 to n-1, at most width at a time, until one fails or ctx ends.
func inParallel(ctx context.Context, n, width int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var all sync.WaitGroup
	for range min(n, width) {
		all.Go(func() {
			for i := range next {
				if err := f(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	all.Wait()
	return context.Cause(ctx)
}

// withParameter returns a URL with one more parameter.
func withParameter(url, key, value string) string {
	if strings.Contains(url, key+"=") {
		return url
	}
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	return url + separator + key + "=" + value
}

func ttlOf(c interface{ Capabilities() backend.Capabilities }, ttl time.Duration) time.Duration {
	caps := c.Capabilities()
	if caps.MaxTTL > 0 {
		ttl = min(ttl, caps.MaxTTL)
	}
	return max(ttl, caps.MinTTL)
}
