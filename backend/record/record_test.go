package record_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/record"
)

// memory is a Store in memory, whose versions are numbers that rise.
type memory struct {
	mu        sync.Mutex // guards the fields below
	items     map[string]record.Item
	versions  uint64
	writes    int
	refused   int
	lost      bool // writes do not arrive
	noVersion bool // Write returns no version
	fail      func(op string) error
}

func newMemory() *memory {
	return &memory{items: map[string]record.Item{}}
}

var errNoReply = errors.New("no reply")

func (m *memory) Read(_ context.Context, key string) (record.Item, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		if err := m.fail("read"); err != nil {
			return record.Item{}, err
		}
	}
	return m.items[key], nil
}

func (m *memory) Write(_ context.Context, key string, value []byte, version string, _ time.Duration) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost {
		return "", errNoReply
	}
	if m.items[key].Version != version {
		m.refused++
		return "", record.ErrChanged
	}
	m.versions++
	m.writes++
	version = strconv.FormatUint(m.versions, 10)
	m.items[key] = record.Item{Value: value, Version: version, Written: time.Now()}
	if m.fail != nil {
		if err := m.fail("write"); err != nil {
			return "", err
		}
	}
	if m.noVersion {
		return "", nil
	}
	return version, nil
}

// failing sets what fails.
func (m *memory) failing(fail func(op string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = fail
}

func (m *memory) written() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writes
}

const ttl = 10 * time.Second

func request(owner string) backend.Request {
	return backend.Request{Key: "k", TTL: ttl, Owner: owner, Metadata: "by " + owner}
}

func take(t *testing.T, l *record.Locks, owner string) backend.Grant {
	t.Helper()
	g, err := l.TryAcquire(t.Context(), request(owner))
	if err != nil {
		t.Fatalf("%s: %v", owner, err)
	}
	return g
}

func refused(t *testing.T, l *record.Locks, owner, holder string) {
	t.Helper()
	_, err := l.TryAcquire(t.Context(), request(owner))
	var locked *backend.LockedError
	if !errors.As(err, &locked) || locked.Holder.Owner != holder {
		t.Fatalf("%s: want it held by %s, got %v", owner, holder, err)
	}
}

func nothing(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A lock of a holder that does not renew is taken by a client that has seen the record unchanged
// for the TTL of the record, counted from the first receipt.
func TestTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		holder, other := record.New(m, record.Options{}), record.New(m, record.Options{})
		begun := time.Now()
		g := take(t, holder, "a")
		if until := g.Until().Sub(begun); until != ttl {
			t.Errorf("the lease ends %v after the request, want %v", until, ttl)
		}
		time.Sleep(ttl - time.Second)
		refused(t, other, "b", "a")
		nothing(t, g.Renew(t.Context(), ttl))
		time.Sleep(ttl - time.Second)
		refused(t, other, "b", "a") // this version is new
		time.Sleep(ttl - time.Millisecond)
		refused(t, other, "b", "a")
		time.Sleep(time.Millisecond)
		b := take(t, other, "b")
		if b.Token() <= g.Token() {
			t.Errorf("token %d after %d", b.Token(), g.Token())
		}
		if err := g.Renew(t.Context(), ttl); !errors.Is(err, backend.ErrLost) {
			t.Errorf("renewal of the first: %v", err)
		}
		if err := g.Release(t.Context()); !errors.Is(err, backend.ErrLost) {
			t.Errorf("release of the first: %v", err)
		}
		refused(t, holder, "c", "b")
	})
}

// A lease counts from before the request was sent, however late its reply is.
func TestLeaseCountsFromTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		l := record.New(m, record.Options{})
		m.failing(func(op string) error {
			if op == "write" {
				time.Sleep(time.Second)
			}
			return nil
		})
		begun := time.Now()
		g := take(t, l, "a")
		if until := g.Until().Sub(begun); until > ttl {
			t.Errorf("the lease ends %v after the request, want %v", until, ttl)
		}
		begun = time.Now()
		nothing(t, g.Renew(t.Context(), ttl))
		if until := g.Until().Sub(begun); until > ttl {
			t.Errorf("the renewed lease ends %v after the request, want %v", until, ttl)
		}
	})
}

// A renewal with a shorter TTL ends the lease earlier for its holder. Other clients still wait for
// the longer one: an earlier renewal may be trusted.
func TestShorterRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		holder, other := record.New(m, record.Options{}), record.New(m, record.Options{})
		g := take(t, holder, "a")
		nothing(t, g.Renew(t.Context(), time.Second))
		if left := time.Until(g.Until()); left != time.Second {
			t.Errorf("%v left, want 1s", left)
		}
		refused(t, other, "b", "a")
		time.Sleep(ttl - time.Millisecond)
		refused(t, other, "b", "a")
		time.Sleep(time.Millisecond)
		take(t, other, "b")
	})
}

// A service that has lost its data may count its versions from the beginning again.
func TestVersionsRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		other := record.New(m, record.Options{})
		take(t, record.New(m, record.Options{}), "a")
		refused(t, other, "b", "a")
		m.items, m.versions = map[string]record.Item{}, 0
		time.Sleep(ttl)
		take(t, record.New(m, record.Options{}), "c")
		refused(t, other, "b", "c")
	})
}

// A client that only tries takes the lock of a dead holder when it has seen it for the TTL, and whatever the
// clock of the service says: it may have written the record an hour ago, or in the future.
func TestTriesOfADeadHolder(t *testing.T) {
	for _, off := range []time.Duration{-time.Hour, 0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory()
			take(t, record.New(m, record.Options{}), "a")
			item := m.items["k"]
			item.Written = item.Written.Add(off)
			m.items["k"] = item
			l := record.New(m, record.Options{})
			for range 9 {
				refused(t, l, "b", "a")
				time.Sleep(ttl / 9)
			}
			time.Sleep(ttl % 9)
			take(t, l, "b")
		})
	}
}

// A write that arrives after its attempt was abandoned is refused, whether the lock was free before
// or never used.
func TestLateAcquire(t *testing.T) {
	for _, used := range []bool{false, true} {
		m := newMemory()
		l := record.New(m, record.Options{})
		if used {
			nothing(t, take(t, l, "before").Release(t.Context()))
		}
		late, _ := m.Read(t.Context(), "k") // what the attempt has read
		nothing(t, l.Abandon(t.Context(), request("a")))
		if _, err := m.Write(t.Context(), "k", []byte("a"), late.Version, ttl); !errors.Is(err, record.ErrChanged) {
			t.Errorf("used before %v: the late write: %v", used, err)
		}
		take(t, l, "b")
	}
}

// Abandon ends the lock of its attempt and that of no other one.
func TestAbandon(t *testing.T) {
	m := newMemory()
	l := record.New(m, record.Options{})
	take(t, l, "a")
	nothing(t, l.Abandon(t.Context(), request("b")))
	refused(t, l, "c", "a")
	nothing(t, l.Abandon(t.Context(), request("a")))
	take(t, l, "c")
}

// A request that was executed without a reply is known as the attempt's own.
func TestLostReplies(t *testing.T) {
	for _, noVersion := range []bool{false, true} {
		m := newMemory()
		m.noVersion = noVersion
		l := record.New(m, record.Options{})
		once := func() {
			lost := false
			m.failing(func(op string) error {
				if op == "write" && !lost {
					lost = true
					return errNoReply
				}
				return nil
			})
		}
		once()
		if _, err := l.TryAcquire(t.Context(), request("a")); !errors.Is(err, errNoReply) || !backend.OutcomeUnknown(err) {
			t.Fatalf("an acquire without a reply: %v", err)
		}
		g := take(t, l, "a") // repeats it
		once()
		if err := g.Renew(t.Context(), ttl); !errors.Is(err, errNoReply) {
			t.Fatalf("a renewal without a reply: %v", err)
		}
		nothing(t, g.Renew(t.Context(), ttl))
		once()
		if err := g.Release(t.Context()); !errors.Is(err, errNoReply) {
			t.Fatalf("a release without a reply: %v", err)
		}
		nothing(t, g.Release(t.Context()))
		b := take(t, l, "b")
		if b.Token() <= g.Token() {
			t.Errorf("token %d after %d", b.Token(), g.Token())
		}
	}
}

// A read that fails has changed nothing.
func TestReadFails(t *testing.T) {
	m := newMemory()
	l := record.New(m, record.Options{})
	m.failing(func(string) error { return errNoReply })
	if _, err := l.TryAcquire(t.Context(), request("a")); !errors.Is(err, errNoReply) || backend.OutcomeUnknown(err) {
		t.Errorf("want the error as one of a request that was not executed, got %v", err)
	}
}

// What another program wrote is a holder that does not expire.
func TestForeign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		l := record.New(m, record.Options{})
		_, err := m.Write(t.Context(), "k", []byte("something else"), "", 0)
		nothing(t, err)
		refused(t, l, "a", "something else")
		time.Sleep(time.Hour)
		refused(t, l, "a", "something else")
		h, err := l.Break(t.Context(), "k", "")
		if err != nil || h == nil || !h.Foreign {
			t.Fatalf("broke %+v, %v", h, err)
		}
		take(t, l, "a")
	})
}

// Tokens begin with the clock, rise by one, and are the versions of a service that counts them.
func TestTokens(t *testing.T) {
	m := newMemory()
	l := record.New(m, record.Options{})
	before := uint64(time.Now().UnixMicro())
	last := uint64(0)
	for i := range 3 {
		g := take(t, l, strconv.Itoa(i))
		if g.Token() < before || last != 0 && g.Token() != last+1 {
			t.Errorf("token %d after %d", g.Token(), last)
		}
		last = g.Token()
		nothing(t, g.Renew(t.Context(), ttl))
		nothing(t, g.Release(t.Context()))
	}

	m = newMemory()
	m.versions = 41
	l = record.New(m, record.Options{Token: func(version string) uint64 { n, _ := strconv.ParseUint(version, 10, 64); return n }})
	g := take(t, l, "a")
	nothing(t, g.Renew(t.Context(), ttl))
	info, err := l.Inspect(t.Context(), "k")
	if g.Token() != 42 || err != nil || info.Holder == nil || info.Holder.Token != 42 {
		t.Errorf("want token 42, got %d, inspected %+v, %v", g.Token(), info.Holder, err)
	}
}

// Break ends the lock of the owner that was seen, and no later one.
func TestBreak(t *testing.T) {
	m := newMemory()
	l := record.New(m, record.Options{})
	if h, err := l.Break(t.Context(), "k", ""); h != nil || err != nil {
		t.Errorf("of a free lock: %+v, %v", h, err)
	}
	g := take(t, l, "a")
	var locked *backend.LockedError
	if _, err := l.Break(t.Context(), "k", "b"); !errors.As(err, &locked) || locked.Holder.Owner != "a" {
		t.Errorf("of another owner: %v", err)
	}
	h, err := l.Break(t.Context(), "k", "a")
	if err != nil || h == nil || h.Metadata != "by a" || h.Token != g.Token() {
		t.Errorf("broke %+v, %v", h, err)
	}
	if err := g.Renew(t.Context(), ttl); !errors.Is(err, backend.ErrLost) {
		t.Errorf("renewal afterwards: %v", err)
	}
}
