package conformance

import (
	"fmt"
	"reflect"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

var capabilityCases = []Case{
	{
		ID:    "capabilities/00-consistent",
		Title: "capabilities are complete, constant, and agree with what is implemented",
		Clause: "Capabilities says what the backend guarantees, and is constant. " +
			"MaxTTL is at most backend.MaxTTL, and positive if grants expire.",
		run: capabilitiesConsistent,
	},
	{
		ID:     "capabilities/00-inspect",
		Title:  "Inspect shows the holder, its token, its metadata and the waiters",
		Clause: "Inspector returns the holder and the waiters of a key.",
		needs:  []need{needInspect},
		run:    inspect,
	},
	{
		ID:     "capabilities/00-changes",
		Title:  "a client that watches a key is notified of each change of its holder and its waiters",
		Clause: "WatchChanges calls changed as soon as it watches the key, and then after each change of the holder or the waiters.",
		needs:  []need{needInspect, needChanges},
		run:    watchChanges,
	},
	{
		ID:     "capabilities/00-list",
		Title:  "List yields each held key once, free ones never, and stops when yield returns false",
		Clause: "Lister lists the keys held at the moment, each at most once, and stops with yield's first false.",
		needs:  []need{needList},
		run:    list,
	},
	{
		ID:     "capabilities/00-ping",
		Title:  "Ping answers",
		Clause: "Pinger makes one cheap round trip to the service.",
		needs:  []need{needPing},
		run: func(t *T) {
			c := t.client()
			t.within(t.slack(), "Ping", func() {
				if err := c.Ping(t.ctx); err != nil {
					t.errorf("Ping of a service that answers: want nil, got %v", err)
				}
			})
		},
	},
}

func capabilitiesConsistent(t *T) {
	b := t.open()
	c := b.Capabilities()
	for field, ok := range map[string]bool{
		"Name":    c.Name != "",
		"Scope":   c.Scope >= backend.ScopeProcess && c.Scope <= backend.ScopeNetwork,
		"Loss":    c.Loss >= backend.LossTTL && c.Loss <= backend.LossProcess,
		"Order":   c.Order >= backend.Unordered && c.Order <= backend.FIFO,
		"Wake":    c.Wake >= backend.WakePoll && c.Wake <= backend.WakePush,
		"Fencing": c.Fencing >= backend.FencingNone && c.Fencing <= backend.FencingFailover,
		"MinTTL":  c.MinTTL >= 0,
		"MaxTTL": c.MaxTTL == 0 && c.Loss == backend.LossProcess ||
			c.MaxTTL >= max(c.MinTTL, 50*time.Millisecond) && c.MaxTTL <= backend.MaxTTL,
		"MaxName": c.MaxName >= 0 && c.MaxName <= backend.MaxName,
	} {
		if !ok {
			t.errorf("Capabilities.%s: want it declared with a valid value, got %+v", field, reflect.ValueOf(c).FieldByName(field))
		}
	}
	if _, ok := b.(backend.Waiter); !ok && (c.Wake == backend.WakePush || c.Order == backend.FIFO) {
		t.errorf("order %v and wake %v: want neither fifo nor push of a driver without a queue (backend.Waiter)", c.Order, c.Wake)
	}
	if _, ok := b.(backend.Breaker); !ok && c.PushesLoss {
		t.errorf("PushesLoss: want it of a driver that can break (backend.Breaker) only")
	}
	t.try(b, request(t.key("used"), t.longTTL()), "a free key")
	if again := b.Capabilities(); !reflect.DeepEqual(again, c) {
		t.errorf("Capabilities: want them constant, got %+v and later %+v", c, again)
	}
	if other := t.open().Capabilities(); !reflect.DeepEqual(other, c) {
		t.errorf("Capabilities: want the same of two clients of one service, got %+v and %+v", c, other)
	}
	if !t.fences() {
		l := t.mustLock(t.client().Mutex(t.key("token")), "a free key")
		if token, ok := l.Token(); ok {
			t.errorf("fencing none: want no token, got %d", token)
		}
	}
}

func inspect(t *T) {
	key := t.key("inspect")
	c := t.client()
	if info, err := c.Inspect(t.ctx, key); err != nil || info.Holder != nil || info.Name != key {
		t.errorf("Inspect of a free key: want its name and no holder, got %+v, %v", info, err)
	}
	begun := time.Now()
	const says = `metadata "with" spaces, ünïcode & <signs>`
	l := t.mustLock(t.client().Mutex(key, lock.WithMetadata(says)), "a free key")
	w := t.waiter()
	got := t.lockWaiting(t.ctx, w, key, lock.WithMetadata("second"))
	info, err := c.Inspect(t.ctx, key)
	if err != nil {
		t.fatalf("Inspect of a held key: want its holder, got %v", err)
	}
	h := info.Holder
	token, _ := l.Token()
	switch {
	case info.Name != key:
		t.errorf("Inspect: want the name %q, got %q", key, info.Name)
	case h == nil:
		t.errorf("Inspect of a held key: want its holder, got none")
	case h.Owner != l.Owner() || h.Metadata != says || h.Foreign:
		t.errorf("Inspect of a held key: want owner %s with metadata %q, got %+v", l.Owner(), says, h)
	case t.fences() && h.Token != token:
		t.errorf("Inspect of a held key: want token %d, got %d", token, h.Token)
	case h.Age < 0 || h.Age > time.Since(begun)+t.slack():
		t.errorf("Inspect of a held key: want an age of no more than %v, or 0 for unknown, got %v", time.Since(begun), h.Age)
	case t.caps.Loss == backend.LossTTL && (h.Left <= 0 || h.Left > t.longTTL()):
		t.errorf("Inspect of a held key: want up to %v left, got %v", t.longTTL(), h.Left)
	}
	if t.caps.Order == backend.FIFO && (len(info.Waiters) != 1 || info.Waiters[0].Metadata != "second") {
		t.errorf("Inspect of a key that one waits for: want it with metadata %q, got %+v", "second", info.Waiters)
	}
	for _, w := range info.Waiters {
		if w.Age < 0 || w.Age > time.Since(begun)+t.slack() {
			t.errorf("Inspect of a key that one waits for: want a waiter's age of no more than %v, or 0 for unknown, got %v", time.Since(begun), w.Age)
		}
	}
	t.mustUnlock(l, "the holder")
	t.mustUnlock(t.granted(t.slack(), "the waiter", got).lease, "the waiter")
	t.eventually(t.slack(), "Inspect of a released key", func() error { // of several nodes one may be late
		info, err := c.Inspect(t.ctx, key)
		if err == nil && (info.Holder != nil || len(info.Waiters) > 0) {
			err = fmt.Errorf("want neither holder nor waiters, got %+v", info)
		}
		return err
	})
}

func list(t *T) {
	const n = 20
	c := t.client()
	want := map[string]*lock.Lease{}
	for i := range n {
		key := t.key(fmt.Sprintf("list %d/ü", i))
		want[key] = t.mustLock(c.Mutex(key), "a free key")
	}
	seen := map[string]int{}
	for info, err := range t.client().List(t.ctx) {
		if err != nil {
			t.fatalf("List: want the held keys, got %v", err)
		}
		seen[info.Name]++
		if l := want[info.Name]; l != nil && (info.Holder == nil || info.Holder.Owner != l.Owner()) {
			t.errorf("List: want the holder of %q, %s, got %+v", info.Name, l.Owner(), info.Holder)
		}
	}
	for key, l := range want {
		if seen[key] != 1 {
			t.errorf("List: want the held key %q once, got it %d times", key, seen[key])
		}
		t.mustUnlock(l, "a holder")
	}
	for info, err := range c.List(t.ctx) {
		if err != nil {
			t.fatalf("List: want the held keys, got %v", err)
		}
		if want[info.Name] != nil {
			t.errorf("List: want held keys only, got %q, which is free", info.Name)
		}
	}
	two := []*lock.Lease{t.mustLock(c.Mutex(t.key("x")), "a free key"), t.mustLock(c.Mutex(t.key("y")), "a free key")}
	calls := 0
	if err := t.open().(backend.Lister).List(t.ctx, func(backend.Info) bool { calls++; return false }); err != nil || calls != 1 {
		t.errorf("List whose yield returns false: want one call and nil, got %d and %v", calls, err)
	}
	for _, l := range two {
		t.mustUnlock(l, "a holder")
	}
}
