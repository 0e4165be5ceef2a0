package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/faults/workload"
	"github.com/interlock-go/lock/integration/provision"
)

// The size of a run's workload.
const (
	sessions = 4
	slowKeys = 3
	fastKeys = 12

	sharedKeys = 4
)

// run is one run under way.
type run struct {
	service *Service
	ttl     time.Duration
	seed    uint64
	keys    []string
	fence   workload.Fence
	losing  atomic.Pointer[losing]

	sessions  []*session
	processes []*process
	workers   int
	phase     time.Duration // of the workers' rest; not the seed's, so that services do not work all at once
	command   func() *exec.Cmd
	crowd     bool // the processes are one

	mu    sync.Mutex
	begun time.Time
	ops   []workload.Op
	log   []string
	kills []int64 // of processes
}

func (r *run) record(op workload.Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, op)
}

// Logf notes what happens, for the log of a run that fails.
func (r *run) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, fmt.Sprintf("%.3fs ", time.Since(r.begun).Seconds())+fmt.Sprintf(format, args...))
}

// crowds keeps the processes of a crowd from running beside the runs of other services, whose clients would not be
// served for want of processors.
var crowds sync.RWMutex

// Run makes one run of about that length, checks the service after it, and returns the
// result. It fails the test only if there is no result.
func (s *Service) Run(t testing.TB, f Fault, seed uint64, length time.Duration) *Result {
	t.Helper()
	if f.Crowd {
		crowds.Lock()
		defer crowds.Unlock()
	} else {
		crowds.RLock()
		defer crowds.RUnlock()
	}
	r := &run{service: s, ttl: s.ttl(), seed: seed, begun: time.Now(), command: s.Command, crowd: f.Crowd, phase: rand.N(s.ttl())}
	for i := range slowKeys {
		r.keys = append(r.keys, fmt.Sprintf("slow-%d", i))
	}
	for i := range fastKeys {
		r.keys = append(r.keys, fmt.Sprintf("fast-%d", i))
	}
	for i := range sharedKeys { // those of readers and those of permits by turns
		r.keys = append(r.keys, fmt.Sprintf("shared-%d", i))
	}
	r.keys = append(r.keys, "leader")
	res := &Result{Service: s.Name, Fault: f.Name, Seed: seed, Length: length, known: f.Known}
	if err := r.open(t, f); err != nil {
		r.end(res)
		t.Fatalf("%s, %s: %v", s.Name, f.Name, err)
	}
	caps := r.sessions[0].lock.Capabilities()
	r.begun = time.Now()
	stalls := lookForStalls(r.ttl / 4)

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for _, c := range r.sessions {
		c.started = true
		go func() {
			defer close(c.done)
			c.Run(ctx)
		}()
	}
	if err := r.strike(ctx, f, length); err != nil {
		stop()
		r.end(res)
		t.Fatalf("%s, %s (seed %d): %v", s.Name, f.Name, seed, err)
	}
	healed := time.Now()
	r.Logf("healed")
	bound := 2*r.ttl + s.slack() + r.deadWaiters()
	r.calm(healed, bound+time.Second)
	r.Logf("enough")
	calmed := time.Now()
	for i, c := range r.sessions {
		if !c.Served(healed) {
			res.Violations = append(res.Violations, Violation{Rule: Cut, Text: fmt.Sprintf("session %d, or its candidate, got no grant for %v after the last fault\n%s", i, calmed.Sub(healed), c.Unserved(healed))})
		}
	}
	stop()
	r.end(res)
	stalled := stalls()
	for _, st := range stalled {
		r.Logf("the machine paused for %v", time.Duration(st.to-st.from))
	}
	stalled = append(stalled, slowReleases(r.ops, r.ttl/4)...)
	res.Left = r.lookForOrphans(res, 2*r.ttl+s.slack())
	h := &history{
		ops: r.ops, keys: r.keys, tokens: s.tokens,
		fenced: caps.Fencing > backend.FencingNone, fifo: caps.Order == backend.FIFO,
		begun: workload.Monotonic(r.begun), healed: workload.Monotonic(healed), bound: bound,
		settled: workload.Monotonic(healed.Add(s.settle())), stalls: stalled, settle: s.settle(),
	}
	if f.Crowd { // its sessions are never disturbed
		h.settled, h.allowance = h.begun, r.allowance
	}
	res.Violations = append(res.Violations, h.check(s.judge())...)
	res.sum(h, workload.Monotonic(calmed))
	res.Log, res.ops = r.log, r.ops
	s.remember(h)
	return res
}

// open opens the sessions and starts the processes.
func (r *run) open(t testing.TB, f Fault) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i := range sessions {
		c := &session{done: make(chan struct{})}
		var addrs []string
		for _, upstream := range r.service.Upstreams {
			p := provision.NewProxy(t, upstream)
			c.proxies = append(c.proxies, p)
			addr := p.Addr()
			if f.Named {
				addr = p.Name(t)
			}
			addrs = append(addrs, addr)
		}
		url := r.service.Direct
		if len(addrs) > 0 {
			url = r.service.URL(addrs)
		}
		if err := again(ctx, func() (err error) {
			c.lock, err = r.service.open(ctx, url)
			return err
		}); err != nil {
			return fmt.Errorf("open session %d: %w", i, err)
		}
		c.Client = workload.New(r.config(workload.Config{Fast: 3, Holders: 1, Patients: 1, Leaders: 1}), c.lock, &r.fence, r.record)
		dice := rand.New(rand.NewPCG(r.seed, uint64(1000+i)))
		var mu sync.Mutex
		c.Before = func(what string) {
			mu.Lock()
			hit := dice.IntN(4) == 0
			mu.Unlock()
			if l := r.losing.Load(); l != nil && l.what == what && hit {
				c.each(func(p *provision.Proxy) { p.CutAfterReplies(l.n) })
			}
		}
		r.sessions = append(r.sessions, c)
	}
	off := f.Clock
	for i := range f.Processes {
		if off != 0 {
			clock, d := r.service.ClockCommand(t), off
			r.command = func() *exec.Cmd { return clock(d) }
			off = -off
		}
		p, err := startProcess(r.command(), r.config(r.member(i)), &r.fence, r.record)
		if err != nil {
			return err
		}
		r.processes = append(r.processes, p)
	}
	return nil
}

// config completes the configuration of the next client.
func (r *run) config(cfg workload.Config) workload.Config {
	cfg.URL, cfg.TTL, cfg.Keys, cfg.Slow, cfg.Shared = r.service.Direct, r.ttl, r.keys, slowKeys, sharedKeys
	cfg.Seed, cfg.First = r.seed, r.workers
	if share := r.service.share(); share > 1 {
		cfg.Period, cfg.Phase = r.ttl/8, r.phase
		cfg.Busy = cfg.Period / share
	}
	r.workers += cfg.Workers()
	return cfg
}

// strike repeats the fault for length.
func (r *run) strike(ctx context.Context, f Fault, length time.Duration) error {
	over, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	dice := rand.New(rand.NewPCG(r.seed, 0))
	s := &Strike{run: r, R: dice, least: f.Least, most: f.Most}
	for ; over.Err() == nil; s.N++ {
		s.Last(over, time.Duration(dice.Int64N(int64(r.ttl/4))))
		if f.Strike == nil {
			<-over.Done()
			break
		}
		if over.Err() != nil {
			break
		}
		// A fault lasts for its own length, also past that of the run.
		if err := f.Strike(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// settle is how long after the last fault the order of waiters is not judged, while
// sessions reconnect: a waiter that cannot be notified of its turn is passed over.
func (s *Service) settle() time.Duration { return s.ttl() }

// calm returns when every client that waited during the faults has been served, every client
// got a grant since, and the time in which the order is judged has passed; or after most.
func (r *run) calm(healed time.Time, most time.Duration) {
	for _, c := range r.sessions {
		c.Calm()
	}
	for _, p := range r.processes {
		p.say("calm")
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		waits := false
		for _, c := range r.sessions {
			waits = waits || c.Waits(healed) || !c.Served(healed)
		}
		if since := time.Since(healed); since > most || !waits && since > r.service.settle()+time.Second/2 {
			return
		}
	}
}

// end returns when all clients have released their locks, and closes their sessions.
func (r *run) end(res *Result) {
	const within = 30 * time.Second
	stuck := func(format string, args ...any) {
		res.Violations = append(res.Violations, Violation{Rule: Stuck, Text: fmt.Sprintf(format, args...)})
	}
	for i, p := range r.processes {
		if err := p.stop(within); err != nil {
			stuck("process %d: %v", i, err)
		}
	}
	late, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for i, c := range r.sessions {
		if !c.started {
			continue
		}
		select {
		case <-c.done:
			res.Refused += c.Refused()
		case <-late.Done():
			stuck("a worker of session %d did not end within %v", i, within)
		}
	}
}

// process returns any of the processes.
func (s *Strike) process() *process { return s.processes[s.R.IntN(len(s.processes))] }

// replace kills a process and starts another.
func (r *run) replace(i int) error {
	p := r.processes[i]
	r.Logf("process %d killed", p.cmd.Process.Pid)
	for _, op := range p.kill() {
		r.record(op)
	}
	r.mu.Lock()
	r.kills = append(r.kills, workload.Monotonic(time.Now()))
	r.mu.Unlock()
	next, err := startProcess(r.command(), r.config(r.member(i)), &r.fence, r.record)
	if err != nil {
		return err
	}
	r.processes[i] = next
	return nil
}

// deadWaiters is how long waiters may have to wait for the waiters of killed processes
// before them: a service that does not notice that a waiter has died grants it the key in
// its turn, for its TTL, or for three seconds at most.
func (r *run) deadWaiters() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Duration(len(r.kills)) * min(r.ttl, 3*time.Second)
}

// lookForOrphans takes each key once more in a session without faults, and returns how long
// the slowest took. Then it closes all sessions.
func (r *run) lookForOrphans(res *Result, bound time.Duration) time.Duration {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	begun := time.Now()
	var c *lock.Client
	if err := again(ctx, func() (err error) {
		c, err = r.service.open(ctx, r.service.Direct)
		return err
	}); err != nil {
		res.Violations = append(res.Violations, Violation{Rule: Orphan, Text: fmt.Sprintf("no client can open a session: %v", err)})
		return time.Since(begun)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var slowest time.Duration
	for i, key := range r.keys {
		all.Go(func() {
			call := workload.Monotonic(time.Now())
			var l *lock.Lease
			err := again(ctx, func() (err error) {
				call = workload.Monotonic(time.Now())
				l, err = c.Mutex(key).Lock(ctx)
				return err
			})
			took := time.Since(begun)
			mu.Lock()
			defer mu.Unlock()
			slowest = max(slowest, took)
			if err != nil {
				who := ""
				if info, err := c.Inspect(context.Background(), key); err == nil {
					who = fmt.Sprintf("; holder %+v, waiters %v", info.Holder, info.Waiters)
				}
				res.Violations = append(res.Violations, Violation{Rule: Orphan, Text: fmt.Sprintf("key %s cannot be taken %v after the end of all clients: %v%s", key, took, err, who)})
				return
			}
			op := workload.Op{Kind: workload.Acquired, Key: i, Worker: r.workers, Hold: r.workers*workload.MaxHolds + i, Call: call, Ret: workload.Monotonic(time.Now())}
			op.Token, _ = l.Token()
			r.record(op)
			op.Kind, op.Call = workload.Released, workload.Monotonic(time.Now())
			if err := l.Unlock(context.Background()); err != nil {
				op.Kind, op.Err = workload.Lost, err.Error()
			}
			op.Ret = workload.Monotonic(time.Now())
			r.record(op)
		})
	}
	all.Wait()
	for _, c := range append(r.clients(), c) {
		end, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		if err := c.Close(end); err != nil {
			r.Logf("close: %v", err)
		}
		cancel()
	}
	return slowest
}

// again repeats do, which may fail on a busy machine, until ctx ends.
func again(ctx context.Context, do func() error) error {
	for {
		err := do()
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// replay is the command that repeats a run.
func (res *Result) replay(test string) string {
	return fmt.Sprintf("go test ./integration/faults -run '^%s$/^%s$/^%s$' -faults.seed %d -faults.length %v",
		test, strings.ReplaceAll(res.Service, " ", "_"), strings.ReplaceAll(res.Fault, " ", "_"), res.Seed, res.Length)
}
