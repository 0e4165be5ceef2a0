package redislock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/backend/queue/queuetest"
	"github.com/interlock-go/lock/redislock/internal/protocol"
	"github.com/interlock-go/lock/redislock/internal/redistest"
	"github.com/interlock-go/lock/redislock/internal/server"
)

// recorder has the events that a process got.
type recorder struct {
	mu      sync.Mutex
	process string
	events  []queuetest.Event
	changed chan struct{}
}

func (r *recorder) add(e queuetest.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Process = r.process
	r.events = append(r.events, e)
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

func (r *recorder) Granted(g queue.Grant) {
	g.Received = time.Time{}
	r.add(queuetest.Event{Kind: queuetest.Granted, Owner: g.Owner, Grant: g})
}
func (r *recorder) LeaseEnds(owner string, left time.Duration) {
	r.add(queuetest.Event{Kind: queuetest.LeaseEnds, Owner: owner, Left: left})
}
func (r *recorder) Asked(_, owner string) {
	r.add(queuetest.Event{Kind: queuetest.Asked, Owner: owner})
}
func (r *recorder) Lost(owner string) { r.add(queuetest.Event{Kind: queuetest.Lost, Owner: owner}) }
func (*recorder) Interrupted(string)  {}

// process is a Service under test.
type process struct {
	name string
	*service
	*recorder
}

func newProcess(t testing.TB, client redis.UniversalClient, prefix, name string, s *scripts, listens bool) *process {
	t.Helper()
	p := &process{name: name, recorder: &recorder{process: name, changed: make(chan struct{}, 1)}}
	p.service = &service{
		srv: server.New(client), proc: protocol.NewProcess(prefix, protocol.PublishAddress), opt: defaults(), scripts: s, events: p.recorder,
	}
	p.srv.Around = p.around
	p.subs = newSubscriptions(p.service)
	if listens {
		if err := p.subs.use(p.proc.Channel(), "").wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = p.service.Close(context.Background()) })
	return p
}

// step is one operation of a sequence.
type step struct {
	text string
	do   func(ctx context.Context, p []*process) (now time.Duration, answer any, err error)
	ref  func(r *queuetest.Reference, p []*process, now time.Duration) (any, []queuetest.Event)
	wait time.Duration // before it
}

var shares = []backend.Share{{}, {}, backend.Reader, backend.Reader, {Weight: 1, Capacity: 2}, {Weight: 2, Capacity: 3}, {Weight: 1, Capacity: 3}}

// steps makes a sequence.
func steps(rnd *rand.Rand, key string, n int) []step {
	var all []step
	type one struct {
		p int
		r backend.Request
	}
	var attempts []one
	for len(all) < n {
		if len(attempts) == 0 || rnd.IntN(5) == 0 {
			attempts = append(attempts, one{rnd.IntN(4), backend.Request{
				Key: key, Owner: fmt.Sprintf("%016x%016x", rnd.Uint64(), rnd.Uint64()), Share: shares[rnd.IntN(len(shares))],
				TTL: time.Duration(220+50*rnd.IntN(10)) * time.Millisecond, Metadata: []string{"", "pid 1 on host"}[rnd.IntN(2)],
			}})
		}
		a := attempts[max(0, len(attempts)-1-rnd.IntN(8))]
		if len(attempts) < 8 {
			a = attempts[rnd.IntN(len(attempts))]
		}
		var s step
		switch rnd.IntN(12) {
		case 0, 1, 2, 3, 4:
			q := queue.Attempt{Request: a.r, Mode: queue.Mode(min(rnd.IntN(5), 1))}
			s = step{
				text: fmt.Sprintf("p%d Acquire %.4s %v ttl %v mode %d", a.p, a.r.Owner, a.r.Share, a.r.TTL, q.Mode),
				do: func(ctx context.Context, p []*process) (time.Duration, any, error) {
					x, err := p[a.p].Acquire(ctx, q)
					x.Sent = time.Time{}
					return x.Now, x, err
				},
				ref: func(r *queuetest.Reference, p []*process, now time.Duration) (any, []queuetest.Event) {
					x, ev := r.Acquire(now, p[a.p].name, q)
					return x, ev
				},
			}
		case 5, 6:
			h := queue.Hold{Key: key, Owner: a.r.Owner, Share: a.r.Share, TTL: a.r.TTL, Exactly: rnd.IntN(4) == 0}
			s = step{
				text: fmt.Sprintf("p%d Renew %.4s %v exactly %v", a.p, a.r.Owner, h.TTL, h.Exactly),
				do: func(ctx context.Context, p []*process) (time.Duration, any, error) {
					x := p[a.p].Renew(ctx, []queue.Hold{h})[0]
					return x.Now, fmt.Sprint(x.Err == nil), nil
				},
				ref: func(r *queuetest.Reference, p []*process, now time.Duration) (any, []queuetest.Event) {
					x, ev := r.Renew(now, p[a.p].name, h)
					return fmt.Sprint(x.Err == nil), ev
				},
			}
		case 11:
			s = step{
				text: "Pass",
				do: func(ctx context.Context, p []*process) (time.Duration, any, error) {
					x, err := p[0].Pass(ctx, key)
					return x.Now, x, err
				},
				ref: func(r *queuetest.Reference, _ []*process, now time.Duration) (any, []queuetest.Event) {
					x, ev := r.Pass(now, key)
					return x, ev
				},
			}
		default:
			e := queue.End{Request: a.r, Kind: []queue.Kind{queue.Release, queue.Release, queue.Abandon, queue.Downgrade, queue.Break}[rnd.IntN(5)]}
			if e.Kind <= queue.Abandon {
				e.Late = rnd.IntN(3) == 0
			}
			if e.Kind == queue.Break && rnd.IntN(2) == 0 {
				e.Owner = ""
			}
			if e.Kind == queue.Downgrade && e.Share.Capacity > 0 {
				continue
			}
			if e.Kind == queue.Abandon && rnd.IntN(4) == 0 {
				e.TTL, e.Metadata, e.Share = 0, "", backend.Share{}
			}
			s = step{
				text: fmt.Sprintf("p%d End %d %.4s late %v", a.p, e.Kind, e.Owner, e.Late),
				do: func(ctx context.Context, p []*process) (time.Duration, any, error) {
					x := p[a.p].End(ctx, []queue.End{e})[0]
					return x.Now, x, x.Err
				},
				ref: func(r *queuetest.Reference, p []*process, now time.Duration) (any, []queuetest.Event) {
					x, ev := r.End(now, p[a.p].name, e)
					return x, ev
				},
			}
		}
		switch rnd.IntN(12) {
		case 0:
			s.wait = time.Duration(rnd.IntN(700)) * time.Millisecond
		case 1:
			s.wait = 150 * time.Millisecond
		case 2:
			if rnd.IntN(4) == 0 {
				s.wait = 3100 * time.Millisecond
			}
		}
		all = append(all, s)
	}
	return all
}

// runSteps returns how the answers of a Service differ from those of the rule, "" if they do not.
func runSteps(t testing.TB, client redis.UniversalClient, s *scripts, seed uint64, n int) string {
	rnd := rand.New(rand.NewPCG(seed, 1))
	prefix := fmt.Sprintf("r%x", rand.Uint64())
	var all []*process
	for i := range 4 {
		all = append(all, newProcess(t, client, prefix, fmt.Sprint("p", i), s, i < 3 || seed%2 == 0))
	}
	r := &queuetest.Reference{Reachable: func(p string) bool { return p != "p3" || seed%2 == 0 }}
	var log strings.Builder
	for _, st := range steps(rnd, "k", n) {
		time.Sleep(st.wait)
		now, got, err := st.do(t.Context(), all)
		if err != nil {
			return log.String() + st.text + ": " + err.Error()
		}
		want, events := st.ref(r, all, now)
		fmt.Fprintf(&log, "%v +%v %s\n", now.Truncate(time.Millisecond)%time.Hour, st.wait, st.text)
		for _, e := range events {
			fmt.Fprintf(&log, "      %s %v\n", e.Process, e)
		}
		if !near(reflect.ValueOf(got), reflect.ValueOf(want)) {
			return fmt.Sprintf("%s  want %+v\n  got  %+v", log.String(), show(want), show(got))
		}
		for _, p := range all {
			var mine []queuetest.Event
			for _, e := range events {
				if e.Process == p.name && (r.Reachable(p.name)) {
					mine = append(mine, e)
				}
			}
			if have := p.take(len(mine)); len(have) != len(mine) || !near(reflect.ValueOf(have), reflect.ValueOf(mine)) {
				return fmt.Sprintf("%s  events of %s: want %+v\n  got  %+v", log.String(), p.name, mine, have)
			}
		}
	}
	return ""
}

func show(v any) string {
	if e, ok := v.(queue.Ended); ok && e.Holder != nil {
		return fmt.Sprintf("%+v %+v", e, *e.Holder)
	}
	return fmt.Sprintf("%+v", v)
}

// take returns the events that came, n if they come within a second.
func (r *recorder) take(n int) []queuetest.Event {
	end := time.After(time.Second)
	for {
		r.mu.Lock()
		if len(r.events) >= n {
			all := r.events
			r.events = nil
			r.mu.Unlock()
			return all
		}
		r.mu.Unlock()
		select {
		case <-r.changed:
		case <-end:
			r.mu.Lock()
			defer r.mu.Unlock()
			return slices.Clone(r.events)
		}
	}
}

var duration = reflect.TypeFor[time.Duration]()

// near compares deeply; durations may differ by 4 ms, and empty is nil.
func near(a, b reflect.Value) bool {
	if a.IsValid() != b.IsValid() {
		return false
	}
	if !a.IsValid() {
		return true
	}
	if a.Type() != b.Type() {
		return false
	}
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			if !near(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Pointer, reflect.Interface:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() == b.IsNil()
		}
		return near(a.Elem(), b.Elem())
	case reflect.Slice:
		if a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			if !near(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	}
	if a.Type() == duration {
		return (time.Duration(a.Int()) - time.Duration(b.Int())).Abs() <= 4*time.Millisecond
	}
	return a.Equal(b)
}

func TestRule(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Server(t), PoolSize: 64})
	defer client.Close()
	var wg sync.WaitGroup
	sem := make(chan struct{}, 48)
	var failed sync.Map
	for seed := range uint64(300) {
		sem <- struct{}{}
		wg.Go(func() {
			defer func() { <-sem }()
			var diff string
			for range 3 { // a lease may end just when it is asked about
				if diff = runSteps(t, client, theScripts, seed, 70); diff == "" {
					return
				}
			}
			failed.Store(seed, diff)
		})
	}
	wg.Wait()
	shown := 0
	failed.Range(func(seed, diff any) bool {
		if shown++; shown <= 3 {
			lines := strings.Split(diff.(string), "\n")
			t.Errorf("seed %v:\n%v", seed, strings.Join(lines[max(0, len(lines)-40):], "\n"))
		}
		return true
	})
	if shown > 0 {
		t.Errorf("%d seeds failed", shown)
	}
}

// The comparison finds mistakes in a script.
func TestRuleFindsMistakes(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Server(t), PoolSize: 64})
	defer client.Close()
	for right, wrong := range map[string]string{
		"return held + weight <= capacity":                  "return held + weight < capacity",
		"if unclaimed[addr] then unclaimed[addr], missed =": "if unclaimed[addr] then unclaimed[addr], informed =",
		"local changed = now ~= noted or at < noted_end":    "local changed = now ~= noted",
	} {
		if strings.Count(luaCommon, right) != 1 {
			t.Fatalf("%q is not in the script once", right)
		}
		s := newScripts(strings.Replace(luaCommon, right, wrong, 1))
		var wg sync.WaitGroup
		found := make(chan uint64, 200)
		for seed := range uint64(200) {
			wg.Go(func() {
				if runSteps(t, client, s, seed, 70) != "" {
					found <- seed
				}
			})
		}
		wg.Wait()
		if n := len(found); n < 5 { // a lease that ends just when it is asked about is a difference, too
			t.Errorf("%q instead of %q: %d of 200 sequences differ", wrong, right, n)
		}
	}
}
