package measure

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	namesClients = 4
	namesWidth   = 64  // locks at a time
	namesSample  = 100 // names that are used again at the end
)

// probeNames uses N names once, and counts what the service keeps for them after twice the
// retention. It opens the target with that retention, if the driver has such a parameter.
func probeNames(ctx context.Context, m *Measurement, t Target, s Scenario) error {
	open := t.Open
	var withoutRetention error
	if t.URL != "" {
		kept := Interlock(t.Name, withParameter(t.URL, "retention", s.TTL.String()))
		c, err := kept.Open(ctx)
		if withoutRetention = err; err == nil {
			_ = c.Close(ctx) // it holds nothing
			open = kept.Open
		}
	}
	var clients []Client
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		for _, c := range clients {
			_ = c.Close(closing) // it holds nothing
		}
	}()
	for range namesClients {
		c, err := open(ctx)
		if err != nil {
			return err
		}
		clients = append(clients, c)
	}
	before, err := t.Stored(ctx)
	if err != nil {
		return err
	}
	prefix := "bench-names-" + strconv.FormatInt(time.Now().UnixNano(), 36) + "-"
	use := func(ctx context.Context, i int) (uint64, error) {
		l, err := clients[i%len(clients)].Lock(ctx, prefix+strconv.Itoa(i))
		if err != nil {
			return 0, err
		}
		token, _ := l.Token()
		return token, l.Unlock(ctx)
	}
	var (
		used   atomic.Int64
		mu     sync.Mutex
		tokens = map[int]uint64{}
		end    = time.Now().Add(useLimit)
	)
	err = inParallel(ctx, s.N, namesWidth, func(ctx context.Context, i int) error {
		if time.Now().After(end) {
			return nil
		}
		token, err := use(ctx, i)
		if err != nil {
			return err
		}
		used.Add(1)
		if rand.IntN(s.N) < namesSample {
			mu.Lock()
			tokens[i] = token
			mu.Unlock()
		}
		return nil
	})
	if err != nil {
		return err
	}
	most, err := t.Stored(ctx)
	if err != nil {
		return err
	}
	if err := pause(ctx, 2*s.TTL); err != nil {
		return err
	}
	left, err := t.Stored(ctx)
	if err != nil {
		return err
	}
	regressions := 0
	for i, old := range tokens {
		token, err := use(ctx, i)
		if err != nil {
			return err
		}
		if old != 0 && token <= old {
			regressions++
		}
	}
	if left > before && withoutRetention != nil {
		m.FirstErr = "the retention cannot be set: " + withoutRetention.Error()
	}
	n := float64(used.Load())
	m.figure("names used", n)
	m.figure("kept for a name at first", float64(most-before)/n)
	m.figure("left of the names, %", 100*float64(max(left-before, 0))/n)
	m.figure("tokens that did not rise", float64(regressions))
	m.Regressions += int64(regressions)
	return nil
}
