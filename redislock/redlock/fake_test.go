package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/redislock/internal/quorum"
	"github.com/interlock-go/lock/redislock/internal/server"
)

// fake is a server in memory, for tests in virtual time.
type fake struct {
	mu      sync.Mutex
	holds   map[string]hold // by key
	last    map[string]uint64
	refused map[string]bool // owners
	marker  string
	run     int
	step    time.Duration // of its clock
	members []*member     // of clients
}

type hold struct {
	owner string
	token uint64
	until time.Time // by the clock of the test
}

// fakes are the servers by address.
var (
	fakes     sync.Map
	fakePorts atomic.Int64
	fakeDelay atomic.Int64 // of new members
	lateBy    atomic.Int64
)

func init() {
	lateBy.Store(int64(time.Minute))
	real := quorum.NewNode
	quorum.NewNode = func(c *redis.Client, o quorum.Options, events quorum.Events) quorum.Node {
		f, ok := fakes.Load(c.Options().Addr)
		if !ok {
			return real(c, o, events)
		}
		s := f.(*fake)
		m := &member{fake: s, events: events, client: c, delay: time.Duration(fakeDelay.Load())}
		m.life, m.end = context.WithCancel(context.Background())
		s.mu.Lock()
		defer s.mu.Unlock()
		s.members = append(s.members, m)
		return m
	}
}

// newFakes returns n servers, and clients of them.
func newFakes(t *testing.T, n int) (all []*fake, clients []redis.UniversalClient) {
	for i := range n {
		addr := fmt.Sprintf("127.0.0.1:%d", fakePorts.Add(1)) // nothing connects to it
		f := &fake{run: 1000 * (i + 1), holds: map[string]hold{}, last: map[string]uint64{}, refused: map[string]bool{}}
		fakes.Store(addr, f)
		t.Cleanup(func() { fakes.Delete(addr) })
		all = append(all, f)
		c := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	return all, clients
}

// fault says what happens to a request.
type fault int

const (
	none        fault = iota
	down              // it is not sent
	lostRequest       // it never arrives
	lostReply
	late // it is executed after a minute, and its reply is lost
)

// member is a node of a client.
type member struct {
	*fake
	events quorum.Events
	client *redis.Client
	life   context.Context
	end    context.CancelFunc

	faultsMu sync.Mutex
	faults   map[string]fault // by operation
	delay    time.Duration    // each way
	used     map[string]int
	sent     map[string]int // operations
}

func (m *member) set(op string, f fault) {
	m.faultsMu.Lock()
	defer m.faultsMu.Unlock()
	if m.faults == nil {
		m.faults = map[string]fault{}
	}
	m.faults[op] = f
}

// clientsOf returns the clients of members.
func clientsOf(ms []*member) (all []redis.UniversalClient) {
	for _, m := range ms {
		all = append(all, m.client)
	}
	return all
}

func (m *member) slow(d time.Duration) {
	m.faultsMu.Lock()
	defer m.faultsMu.Unlock()
	m.delay = d
}

// empty makes the server lose its locks.
func (f *fake) empty() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holds = map[string]hold{}
}

func (m *member) count(op string) int {
	m.faultsMu.Lock()
	defer m.faultsMu.Unlock()
	return m.sent[op]
}

// do executes an operation at the server.
func (m *member) do(ctx context.Context, op string, execute func()) error {
	m.faultsMu.Lock()
	f, delay := m.faults[op], m.delay
	if m.sent == nil {
		m.sent = map[string]int{}
	}
	m.sent[op]++
	m.faultsMu.Unlock()
	if err := ctx.Err(); err != nil {
		return backend.NotExecuted(err)
	}
	run := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		execute()
	}
	switch f {
	case down:
		return backend.NotExecuted(errors.New("connection refused"))
	case lostRequest:
		<-ctx.Done()
		return backend.Uncertain(ctx.Err())
	case late:
		time.AfterFunc(time.Duration(lateBy.Load()), run)
		<-ctx.Done()
		return backend.Uncertain(ctx.Err())
	}
	time.Sleep(delay)
	run()
	if f == lostReply {
		<-ctx.Done()
	}
	call.Sleep(ctx, delay)
	if ctx.Err() != nil {
		return backend.Uncertain(ctx.Err())
	}
	return nil
}

func (m *member) now() time.Duration {
	return time.Duration(time.Now().UnixMicro())*time.Microsecond + m.step
}

func (m *member) held(key string) (hold, bool) {
	h, ok := m.holds[key]
	return h, ok && time.Now().Before(h.until)
}

func (m *member) Open(ctx context.Context) (f server.Findings, err error) {
	return f, m.do(ctx, "open", func() {})
}

func (m *member) Acquire(ctx context.Context, req backend.Request, least uint64) (quorum.Answer, error) {
	var a quorum.Answer // it may be written late
	a.Sent = time.Now()
	err := m.do(ctx, "acquire", func() {
		a.Now, a.Life = m.now(), m.alive()
		h, held := m.held(req.Key)
		switch {
		case m.refused[req.Owner]:
			a.Refused = true
			return
		case held && h.owner != req.Owner:
			a.Holder, a.Left = backend.Holder{Contender: backend.Contender{Owner: h.owner}, Token: h.token}, time.Until(h.until)
			return
		case !held:
			m.last[req.Key] = max(m.last[req.Key]+1, least)
			h = hold{owner: req.Owner, token: m.last[req.Key]}
		}
		m.last[req.Key] = max(m.last[req.Key], least)
		h.until = time.Now().Add(req.TTL)
		m.holds[req.Key] = h
		a.Granted, a.Token = true, h.token
	})
	if err != nil {
		return quorum.Answer{}, err
	}
	return a, nil
}

func (m *member) alive() quorum.Life {
	return quorum.Life{Now: m.now(), Run: fmt.Sprint(m.run), Marker: m.marker}
}

func (m *member) Renew(ctx context.Context, holds []queue.Hold) []queue.Renewed {
	r := queue.Renewed{Sent: time.Now()}
	err := m.do(ctx, "renew", func() {
		r.Now = m.now()
		h, held := m.held(holds[0].Key)
		if !held || h.owner != holds[0].Owner {
			r.Err = backend.ErrLost
			return
		}
		h.until = time.Now().Add(holds[0].TTL)
		m.holds[holds[0].Key] = h
	})
	if err != nil {
		return []queue.Renewed{{Err: err}}
	}
	return []queue.Renewed{r}
}

func (m *member) End(ctx context.Context, e queue.End) quorum.Ended {
	var r quorum.Ended // it may be written late
	err := m.do(ctx, "end", func() {
		if e.Late {
			m.refused[e.Owner] = true
		}
		h, held := m.held(e.Key)
		if held && (h.owner == e.Owner || e.Owner == "") {
			delete(m.holds, e.Key)
			r.Held, r.Waiting = true, m.announce(e.Key, h.owner)
			if e.Kind == queue.Break {
				r.Holder = &backend.Holder{Contender: backend.Contender{Owner: h.owner}}
				for _, other := range m.members {
					go other.events.Lost(h.owner)
				}
			}
		}
	})
	if err != nil {
		e := quorum.Ended{}
		e.Err = err
		return e
	}
	return r
}

func (m *member) announce(key, owner string) (n int) {
	var to []*member
	for _, other := range m.members {
		if other.Listening(key) {
			to = append(to, other)
		}
	}
	for _, other := range to {
		go other.events.Released(key, owner, 0, len(to))
	}
	return len(to)
}

func (m *member) Mark(ctx context.Context, seen quorum.Life, marker string) (l quorum.Life, err error) {
	err = m.do(ctx, "mark", func() {
		if l = m.alive(); marker != "" && l.Run == seen.Run && l.Marker == seen.Marker {
			m.marker, l.Marker = marker, marker
		}
	})
	return l, err
}

func (m *member) Inspect(ctx context.Context, key string) (in backend.Info, err error) {
	err = m.do(ctx, "inspect", func() {
		if h, held := m.held(key); held {
			in.Holder = &backend.Holder{Contender: backend.Contender{Owner: h.owner}, Token: h.token, Left: time.Until(h.until)}
		}
	})
	return in, err
}

func (m *member) List(context.Context, func(backend.Info) bool) error { return nil }
func (m *member) Ping(ctx context.Context) error                      { return m.do(ctx, "ping", func() {}) }

func (m *member) Use(key string) (stop func()) {
	m.use(key, 1)
	return func() { m.use(key, -1) }
}

func (m *member) use(key string, n int) {
	m.faultsMu.Lock()
	defer m.faultsMu.Unlock()
	if m.used == nil {
		m.used = map[string]int{}
	}
	m.used[key] += n
}

func (m *member) Listening(key string) bool {
	m.faultsMu.Lock()
	defer m.faultsMu.Unlock()
	return m.used[key] > 0
}

func (m *member) Listen(ctx context.Context, _ string) error { return m.do(ctx, "listen", func() {}) }
func (m *member) Context() context.Context                   { return m.life }
func (m *member) Close(context.Context) error                { m.end(); return nil }
func (m *member) Go(f func()) bool {
	if m.life.Err() != nil {
		return false
	}
	go f()
	return true
}
