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
	rawPings    = 30               // pings before a measurement
	rawTime     = time.Second / 2  // of all pings together
	closeLimit  = 30 * time.Second // for closing a client
	warmUpLimit = 10 * time.Second // beyond the minimum time to warm up
	stuckAfter  = 5 * time.Second  // without an acquisition while the lock is free
)

// Measurement is the result of one scenario against one target in one round.
type Measurement struct {
	Target   string        `json:"target"`
	Scenario string        `json:"scenario"`
	Round    int           `json:"round"`
	Took     time.Duration `json:"took_ns"`

	Acquired []int64 `json:"acquired"` // by worker
	Errors   int64   `json:"errors"`
	FirstErr string  `json:"first_error,omitempty"`
	// Overlaps counts acquisitions of a lock that another worker held, Regressions
	// fencing tokens that were not greater than the one before. Both must be zero.
	Overlaps    int64 `json:"overlaps"`
	Regressions int64 `json:"token_regressions"`
	Same        int64 `json:"same_holder"` // acquisitions by the worker that had held before

	// Operations is the number of operations of the server, nil if unknown.
	Operations *int64 `json:"server_operations,omitempty"`
	Spent      *Spent `json:"spent,omitempty"` // nil in scenarios of growth

	Raw     *Times `json:"raw"`      // round trips before the measurement
	Cycle   *Times `json:"cycle"`    // Lock and Unlock, without the hold
	Wait    *Times `json:"wait"`     // Lock, in a closed loop
	HandOff *Times `json:"hand_off"` // from the call of Unlock to the return of Lock of another worker

	Figures []Figure `json:"figures,omitempty"` // of a scenario of growth
}

// meter is the state that the workers of one measurement share.
type meter struct {
	m      *Measurement
	scen   Scenario
	on     atomic.Bool // false during warm-up and drain
	stop   atomic.Bool
	turns  atomic.Int64 // acquisitions, also of warm-up and drain
	errors atomic.Int64
	first  sync.Once

	locks []lockState
	mu    sync.Mutex // guards m
}

// lockState describes a lock. Only the holder writes it; mu prevents data races if the
// lock does not exclude.
type lockState struct {
	holders  atomic.Int32
	mu       sync.Mutex // guards the fields below
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
	if run := probes[s.Kind]; run != nil {
		if err := run(ctx, m, t, s); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", t.Name, s.Name(), err)
		}
		return m, nil
	}
	clients := make([]Client, 0, s.Clients)
	closeAll := sync.OnceFunc(func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		for _, c := range clients {
			_ = c.Close(closing) // the measurement is complete; leases end with their TTL
		}
	})
	defer closeAll()
	if s.Kind == IdleProcesses {
		closeIdle, err := openIdle(ctx, t, s)
		defer closeIdle()
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", t.Name, s.Name(), err)
		}
	}
	for range s.Clients {
		c, err := t.Open(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Name, err)
		}
		clients = append(clients, c)
	}
	if err := m.pingRaw(ctx, clients[0]); err != nil {
		return nil, fmt.Errorf("%s: ping: %w", t.Name, err)
	}
	r := &meter{m: m, scen: s}
	if s.Kind == Many {
		r.locks = make([]lockState, s.Workers)
	} else {
		r.locks = make([]lockState, 1)
	}
	for i := range r.locks {
		r.locks[i].last = -1
	}
	if err := r.run(ctx, t, clients, closeAll); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", t.Name, s.Name(), err)
	}
	m.Errors = r.errors.Load()
	if s.growth() {
		m.figure(failures, float64(m.Errors))
	}
	return m, nil
}

// pingRaw measures the raw round trip.
func (m *Measurement) pingRaw(ctx context.Context, c Client) error {
	for i, start := 0, time.Now(); i < rawPings && time.Since(start) < rawTime; i++ {
		sent := time.Now()
		if err := c.Ping(ctx); err != nil {
			return err
		}
		if i > 2 { // the first pings open connections
			m.Raw.add(time.Since(sent))
		}
	}
	return nil
}

// run starts the workers, measures, and waits for their end.
func (r *meter) run(ctx context.Context, t Target, clients []Client, closeAll func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	name := "bench-" + strconv.FormatInt(time.Now().UnixNano(), 36) + "-"
	var held Lease
	if r.scen.Kind == Idle || r.scen.growth() {
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
	var err error
	if r.scen.growth() {
		err = r.fillQueue(ctx, clients[0], held, name+"0")
		held = nil
	}
	if err == nil {
		err = r.window(ctx, t)
	}
	r.stop.Store(true)
	if held != nil {
		cancel() // ends the waits
		if uerr := held.Unlock(context.WithoutCancel(ctx)); err == nil {
			err = uerr
		}
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	r.drain(ctx, ended, cancel)
	select {
	case <-ended:
	case <-time.After(stuckAfter): // the waits of this library cannot be cancelled
		closeAll()
		<-ended
	}
	return err
}

// drain waits until each waiting worker has had a turn. If no worker proceeds, drain
// cancels the waits.
func (r *meter) drain(ctx context.Context, ended <-chan struct{}, cancel func()) {
	var enough <-chan time.Time
	if r.scen.growth() { // a long queue is not served to its end
		enough = time.After(drainLimit)
	}
	for turns := r.turns.Load(); ; {
		select {
		case <-enough:
			cancel()
			return
		case <-ended:
			return
		case <-ctx.Done():
			return
		case <-time.After(stuckAfter + r.scen.Hold):
		}
		now := r.turns.Load()
		if now == turns {
			r.failed(fmt.Errorf("workers were still waiting %v after the last unlock", stuckAfter))
			cancel()
			return
		}
		turns = now
	}
}

// warmUp waits until connections are open and the queue is complete: for a fifth of the
// scenario's time (at least 200 ms), and until there were twice as many turns as workers
// or warmUpLimit has passed.
func (r *meter) warmUp(ctx context.Context) error {
	turns := int64(2 * r.scen.Workers)
	if r.scen.Kind == Idle || r.scen.growth() {
		turns = 0
	}
	err := pause(ctx, max(r.scen.For/5, 200*time.Millisecond))
	for began := time.Now(); err == nil && r.turns.Load() < turns && time.Since(began) < warmUpLimit; {
		err = pause(ctx, 10*time.Millisecond)
	}
	return err
}

// window warms up and then measures for the scenario's time.
func (r *meter) window(ctx context.Context, t Target) error {
	if err := r.warmUp(ctx); err != nil {
		return err
	}
	before, err := t.count(ctx)
	if err != nil {
		return err
	}
	used, err := t.spent(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	r.on.Store(true)
	err = pause(ctx, r.scen.For)
	r.on.Store(false)
	r.m.Took = time.Since(start)
	if err != nil {
		return err
	}
	usedNow, err := t.spent(ctx)
	if err != nil {
		return err
	}
	after, err := t.count(ctx)
	if err != nil {
		return err
	}
	r.m.Operations = difference(before.operations, after.operations)
	if r.scen.growth() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.m.addCycles(difference(before.written, after.written))
		return nil
	}
	r.m.Spent = usedNow.since(used)
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

// work runs one worker.
func (r *meter) work(ctx context.Context, w int, c Client, l *lockState, name string) {
	for !r.stop.Load() && ctx.Err() == nil {
		called := time.Now()
		lease, ended, err := r.lock(ctx, c, name)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, context.Canceled) {
				return
			}
			if ended {
				continue
			}
			r.failed(err)
			_ = pause(ctx, 10*time.Millisecond)
			continue
		}
		acquired := time.Now()
		r.recordAcquired(l, w, lease, called, acquired)
		if r.scen.Hold > 0 {
			_ = pause(ctx, r.scen.Hold)
		}
		l.mu.Lock()
		l.last, l.unlocked = w, time.Now()
		unlock := l.unlocked
		l.mu.Unlock()
		l.holders.Add(-1)
		err = lease.Unlock(context.WithoutCancel(ctx))
		released := time.Now()
		if err != nil {
			r.failed(err)
		}
		if r.on.Load() {
			r.mu.Lock()
			r.m.Cycle.add(acquired.Sub(called) + released.Sub(unlock))
			r.mu.Unlock()
		}
		if r.scen.Think > 0 {
			_ = pause(ctx, r.scen.Think)
		}
	}
}

// lock calls Lock. In a scenario of growth it waits for waitLimit at most; ended reports
// whether that has passed.
func (r *meter) lock(ctx context.Context, c Client, name string) (l Lease, ended bool, err error) {
	if !r.scen.growth() {
		l, err = c.Lock(ctx, name)
		return l, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	l, err = c.Lock(ctx, name)
	return l, ctx.Err() != nil, err
}

func (r *meter) failed(err error) {
	r.errors.Add(1)
	r.first.Do(func() { r.m.FirstErr = err.Error() })
}

// recordAcquired records that worker w acquired the lock.
func (r *meter) recordAcquired(l *lockState, w int, lease Lease, called, acquired time.Time) {
	r.turns.Add(1)
	overlap := l.holders.Add(1) != 1
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
	// Violations count during warm-up and drain too.
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
	r.m.Wait.add(acquired.Sub(called))
	switch {
	case last == w:
		r.m.Same++
	case last >= 0 && called.Before(unlocked): // the worker was waiting
		r.m.HandOff.add(acquired.Sub(unlocked))
	}
}
