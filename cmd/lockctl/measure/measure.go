package measure

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of one measurement.
const (
	rawPings   = 30               // at most, or for rawFor
	rawFor     = time.Second / 2  //
	closeLimit = 30 * time.Second // for a client to close
	warmLimit  = 10 * time.Second // beyond the least time to warm up
	stuckAfter = 5 * time.Second  // without an acquisition when nobody holds the lock
)

// Measurement is one scenario against one target, once.
type Measurement struct {
	Target   string        `json:"target"`
	Scenario string        `json:"scenario"`
	Round    int           `json:"round"`
	Took     time.Duration `json:"took_ns"`

	// Acquired counts per worker.
	Acquired []int64 `json:"acquired"`
	Errors   int64   `json:"errors"`
	FirstErr string  `json:"first_error,omitempty"`
	// Overlaps counts how often two were inside at once, Regressions how often
	// a fencing token was not greater than the one before. Both must be zero.
	Overlaps    int64 `json:"overlaps"`
	Regressions int64 `json:"token_regressions"`
	Same        int64 `json:"same_holder"` // acquisitions by the worker that had held before

	// Operations is what the server executed meanwhile, nil if not known.
	Operations *int64 `json:"server_operations,omitempty"`

	Raw     *Times `json:"raw"`      // round trips just before
	Cycle   *Times `json:"cycle"`    // Lock and Unlock, without the hold
	Wait    *Times `json:"wait"`     // Lock, closed loop
	HandOff *Times `json:"hand_off"` // from Unlock's call to the Lock of another
}

// meter is what the workers of one measurement share.
type meter struct {
	m      *Measurement
	scen   Scenario
	on     atomic.Bool // being measured: not while it warms up or drains
	stop   atomic.Bool
	turns  atomic.Int64 // acquisitions, measured or not
	errors atomic.Int64
	first  sync.Once

	locks []oneLock
	mu    sync.Mutex // for the times of m
}

// oneLock is what is known of a lock from inside.
type oneLock struct {
	inside atomic.Int32
	// The rest is written by the holder only, and mu is only for the race where there
	// is no exclusion.
	mu       sync.Mutex
	token    uint64
	last     int // worker, -1 for none
	unlocked time.Time
}

// Measure runs a scenario against a target once.
func Measure(ctx context.Context, t Target, s Scenario, round int) (*Measurement, error) {
	m := &Measurement{
		Target: t.Name, Scenario: s.Name(), Round: round, Acquired: make([]int64, s.Workers),
		Raw: newTimes(), Cycle: newTimes(), Wait: newTimes(), HandOff: newTimes(),
	}
	clients := make([]Client, 0, s.Clients)
	closeAll := sync.OnceFunc(func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		for _, c := range clients {
			_ = c.Close(closing) // a measurement is over; what is left ends with its TTL
		}
	})
	defer closeAll()
	for range s.Clients {
		c, err := t.Open(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Name, err)
		}
		clients = append(clients, c)
	}
	if err := m.raw(ctx, clients[0]); err != nil {
		return nil, fmt.Errorf("%s: ping: %w", t.Name, err)
	}
	r := &meter{m: m, scen: s}
	if s.Kind == Many {
		r.locks = make([]oneLock, s.Workers)
	} else {
		r.locks = make([]oneLock, 1)
	}
	for i := range r.locks {
		r.locks[i].last = -1
	}
	if err := r.run(ctx, t, clients, closeAll); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", t.Name, s.Name(), err)
	}
	m.Errors = r.errors.Load()
	return m, nil
}

func (m *Measurement) raw(ctx context.Context, c Client) error {
	for i, start := 0, time.Now(); i < rawPings && time.Since(start) < rawFor; i++ {
		sent := time.Now()
		if err := c.Ping(ctx); err != nil {
			return err
		}
		if i > 2 { // the first ones set up connections
			m.Raw.add(time.Since(sent))
		}
	}
	return nil
}

func (r *meter) run(ctx context.Context, t Target, clients []Client, closeAll func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	name := "bench-" + strconv.FormatInt(time.Now().UnixNano(), 36) + "-"
	var held Lease
	if r.scen.Kind == Idle {
		var err error
		if held, err = clients[0].Lock(ctx, name+"0"); err != nil {
			return err
		}
	}
	var wg sync.WaitGroup
	for w := range r.scen.Workers {
		l := w % len(r.locks)
		wg.Go(func() { r.work(ctx, w, clients[w%len(clients)], &r.locks[l], name+strconv.Itoa(l)) })
	}
	err := r.window(ctx, t)
	r.stop.Store(true)
	if held != nil {
		cancel() // those who wait
		if uerr := held.Unlock(context.WithoutCancel(ctx)); err == nil {
			err = uerr
		}
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	r.drain(ctx, ended, cancel)
	select {
	case <-ended:
	case <-time.After(stuckAfter): // of a library whose waits cannot be cancelled
		closeAll()
		<-ended
	}
	return err
}

// drain waits for the workers: each has a turn still, if it waits. Where the turns
// cease although some wait, those are cancelled.
func (r *meter) drain(ctx context.Context, ended <-chan struct{}, cancel func()) {
	for turns := r.turns.Load(); ; {
		select {
		case <-ended:
			return
		case <-ctx.Done():
			return
		case <-time.After(stuckAfter + r.scen.Hold):
		}
		now := r.turns.Load()
		if now == turns {
			r.failed(fmt.Errorf("workers were still waiting %v after the last one had unlocked", stuckAfter))
			cancel()
			return
		}
		turns = now
	}
}

// warm lets connections and queues be made: for a fifth of the scenario's time (at
// least 200 ms), and until the turns have gone round twice, but not for ever.
func (r *meter) warm(ctx context.Context, t Target) error {
	turns := int64(2 * r.scen.Workers)
	if r.scen.Kind == Idle {
		turns = 0
	}
	err := pause(ctx, max(r.scen.For/5, 200*time.Millisecond)+t.Settle)
	for begun := time.Now(); err == nil && r.turns.Load() < turns && time.Since(begun) < warmLimit; {
		err = pause(ctx, 10*time.Millisecond)
	}
	return err
}

// window measures for the scenario's time.
func (r *meter) window(ctx context.Context, t Target) error {
	if err := r.warm(ctx, t); err != nil {
		return err
	}
	count := func() (int64, error) {
		if t.Operations == nil {
			return 0, nil
		}
		return t.Operations(ctx)
	}
	before, err := count()
	if err != nil {
		return fmt.Errorf("operations of the server: %w", err)
	}
	start := time.Now()
	r.on.Store(true)
	err = pause(ctx, r.scen.For)
	r.on.Store(false)
	r.m.Took = time.Since(start)
	if err != nil {
		return err
	}
	// What the server has not counted yet belongs to about the same number of cycles
	// as what it had not counted at the start.
	after, err := count()
	if err != nil {
		return fmt.Errorf("operations of the server: %w", err)
	}
	if t.Operations != nil {
		n := after - before
		r.m.Operations = &n
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// work is one worker.
func (r *meter) work(ctx context.Context, w int, c Client, l *oneLock, name string) {
	for !r.stop.Load() && ctx.Err() == nil {
		called := time.Now()
		lease, err := c.Lock(ctx, name)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, context.Canceled) {
				return
			}
			r.failed(err)
			_ = pause(ctx, 10*time.Millisecond)
			continue
		}
		got := time.Now()
		r.enter(l, w, lease, called, got)
		if r.scen.Hold > 0 {
			_ = pause(ctx, r.scen.Hold)
		}
		l.mu.Lock()
		l.last, l.unlocked = w, time.Now()
		unlock := l.unlocked
		l.mu.Unlock()
		l.inside.Add(-1)
		err = lease.Unlock(context.WithoutCancel(ctx))
		freed := time.Now()
		if err != nil {
			r.failed(err)
		}
		if r.on.Load() {
			r.mu.Lock()
			r.m.Cycle.add(got.Sub(called) + freed.Sub(unlock))
			r.mu.Unlock()
		}
		if r.scen.Think > 0 {
			_ = pause(ctx, r.scen.Think)
		}
	}
}

func (r *meter) failed(err error) {
	r.errors.Add(1)
	r.first.Do(func() { r.m.FirstErr = err.Error() })
}

// enter notes that worker w holds the lock.
func (r *meter) enter(l *oneLock, w int, lease Lease, called, got time.Time) {
	r.turns.Add(1)
	overlap := l.inside.Add(1) != 1
	l.mu.Lock()
	token, fenced := lease.Token()
	regression := fenced && token <= l.token
	if fenced {
		l.token = token
	}
	last, unlocked := l.last, l.unlocked
	l.mu.Unlock()

	r.mu.Lock()
	defer r.mu.Unlock()
	// Violations count whenever they happen.
	if overlap {
		r.m.Overlaps++
	}
	if regression {
		r.m.Regressions++
	}
	if !r.on.Load() {
		return
	}
	r.m.Acquired[w]++
	r.m.Wait.add(got.Sub(called))
	switch {
	case last == w:
		r.m.Same++
	case last >= 0 && called.Before(unlocked): // it was waiting for this
		r.m.HandOff.add(got.Sub(unlocked))
	}
}
