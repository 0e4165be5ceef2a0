package redislock

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/backend/queue/queuetest"
)

// TestService and TestDifferential show that the scripts keep the rule of queuetest.
func TestService(t *testing.T) { queuetest.Test(t, ruleHarness(t)) }

// LOCK_TEST_SEQUENCES is the number of sequences, about 45 operations each.
func TestDifferential(t *testing.T) {
	n := 500
	if s := os.Getenv("LOCK_TEST_SEQUENCES"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatalf("LOCK_TEST_SEQUENCES: %v", err)
		}
	}
	queuetest.Differential(t, ruleHarness(t), n)
}

func ruleHarness(t *testing.T) queuetest.Harness {
	addr, prefix := sharedServer(t), newPrefix()
	return queuetest.Harness{
		Open:       func(t testing.TB, events queue.Events) queue.Service { return newRuled(t, addr, prefix, events) },
		Disconnect: func(t testing.TB, s queue.Service) (connect func()) { return s.(*ruled).disconnect(t) },
		Rounding:   3 * time.Millisecond, // an end is rounded when it is written, read and reported
	}
}

// ruled is a service whose subscription can be ended.
type ruled struct {
	*service
	client gated
}

func newRuled(t testing.TB, addr, prefix string, events queue.Events) *ruled {
	g := &gate{open: true}
	requests := client(t, addr)
	subscriptions := redis.NewClient(&redis.Options{Addr: addr, Dialer: g.dial, MaxRetries: -1})
	t.Cleanup(func() { _ = subscriptions.Close() })
	r := &ruled{client: gated{requests, subscriptions, g}}
	o := defaults()
	o.prefix = prefix
	r.service = newService(r.client, o)
	r.events = events
	if _, err := r.srv.Probe(t.Context(), theScripts.all(), false); err != nil {
		t.Fatal(err)
	}
	if err := r.subs.use(r.channel, "").wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *ruled) disconnect(t testing.TB) (connect func()) {
	r.client.gate.shut()
	eventually(t, "the server has noticed that the subscription has ended", func() bool {
		n, err := r.client.PubSubNumSub(t.Context(), r.channel).Result()
		return err == nil && n[r.channel] == 0
	})
	return r.client.gate.reopen
}

// gated is a client that subscribes with connections of their own.
type gated struct {
	*redis.Client
	subscriptions *redis.Client
	gate          *gate
}

func (g gated) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return g.subscriptions.Subscribe(ctx, channels...)
}

// gate dials while it is open.
type gate struct {
	mu    sync.Mutex
	open  bool
	conns []net.Conn
}

func (g *gate) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.open {
		return nil, errors.New("the gate is shut")
	}
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err == nil {
		g.conns = append(g.conns, c)
	}
	return c, err
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.conns {
		_ = c.Close()
	}
	g.open, g.conns = false, nil
}

func (g *gate) reopen() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = true
}
