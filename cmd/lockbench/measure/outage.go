package measure

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/conformance/conformancelink"
)

const (
	outageLeases = 100
	outageShare  = 0.6                    // of the TTL: how long the service is silent
	outageWait   = 100 * time.Millisecond // of each Lock during the outage
)

// probeOutage holds leases and calls Lock in N goroutines while the service is silent for
// a part of the TTL. The outage begins right after a renewal of the leases is due.
func probeOutage(ctx context.Context, m *Measurement, t Target, s Scenario) error {
	url, links, closeLinks, err := linked(t.URL)
	if err != nil {
		return err
	}
	defer closeLinks()
	var lost, logged atomic.Int64
	c, err := lock.Open(ctx, url, lock.WithTTL(s.TTL), lock.WithLogger(slog.New(&lines{n: &logged})),
		lock.WithObserver(&lock.Observer{Lost: func(context.Context, lock.Event) { lost.Add(1) }}))
	if err != nil {
		return err
	}
	closeOnce := sync.OnceFunc(func() { closeClient(ctx, c) })
	defer closeOnce()
	stored := func() (n int64, err error) {
		if t.Stored != nil {
			n, err = t.Stored(ctx)
		}
		return n, err
	}
	prefix := "bench-outage-" + strconv.FormatInt(time.Now().UnixNano(), 36) + "-"
	var held [outageLeases]*lock.Lease
	defer runtime.KeepAlive(&held) // a lease that is garbage is reported as forgotten
	err = inParallel(ctx, outageLeases, 16, func(ctx context.Context, i int) (err error) {
		held[i], err = c.Mutex(prefix + "held-" + strconv.Itoa(i)).Lock(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if err := pause(ctx, time.Second); err != nil { // renewals at once after a wait
		return err
	}
	before, err := stored()
	if err != nil {
		return err
	}
	calm := goroutines()

	trying, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	for i := range s.N {
		all.Go(func() {
			mutex := c.Mutex(prefix + strconv.Itoa(i))
			for trying.Err() == nil {
				one, cancel := context.WithTimeout(trying, outageWait)
				if l, err := mutex.Lock(one); err == nil {
					_ = l.Unlock(trying) // what remains is counted below
				}
				_ = pause(one, outageWait) // the next attempt at the end of this one
				cancel()
			}
		})
	}
	if err := pause(ctx, time.Second); err != nil {
		return err
	}
	logged.Store(0)
	each(links, (*conformancelink.Link).Blackhole)
	peak := 0
	for end := time.Now().Add(time.Duration(outageShare * float64(s.TTL))); err == nil && time.Now().Before(end); {
		peak = max(peak, goroutines())
		err = pause(ctx, min(time.Second/4, max(time.Until(end), 0)))
	}
	each(links, (*conformancelink.Link).Heal)
	if err == nil {
		err = pause(ctx, s.TTL/2) // a lease that was not renewed would end now
	}
	stop()
	all.Wait()
	if err == nil {
		err = pause(ctx, s.TTL) // what the clients leave to the TTL is over
	}
	if err != nil {
		return err
	}
	after, err := stored()
	if err != nil {
		return err
	}
	m.figure("leases lost of 100", float64(lost.Load()))
	m.figure("goroutines, of the callers", float64(peak-calm)/float64(s.N))
	m.figure("lines logged", float64(logged.Load()))
	if t.Stored != nil {
		m.figure("left of a caller", float64(after-before)/float64(s.N))
	}
	return nil
}

// goroutines returns the number of goroutines without those of the links.
func goroutines() int {
	var text bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&text, 1) // a buffer accepts it
	n := 0
	for record := range strings.SplitSeq(text.String(), "\n\n") {
		var count int
		for line := range strings.Lines(record) { // the first record begins with a headline
			if _, err := fmt.Sscanf(line, "%d @", &count); err == nil {
				break
			}
		}
		if !strings.Contains(record, "conformancelink.") {
			n += count
		}
	}
	return n
}

// lines is a log handler that counts the records at Info and above.
type lines struct{ n *atomic.Int64 }

func (*lines) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }
func (h *lines) Handle(context.Context, slog.Record) error  { h.n.Add(1); return nil }
func (h *lines) WithAttrs([]slog.Attr) slog.Handler         { return h }
func (h *lines) WithGroup(string) slog.Handler              { return h }
