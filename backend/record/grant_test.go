package record_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/record"
)

// A grant that was released is over, although it knows the version of the free record.
func TestRenewAfterRelease(t *testing.T) {
	for _, noVersion := range []bool{false, true} {
		m := newMemory()
		m.noVersion = noVersion
		l := record.New(m, record.Options{})
		g := take(t, l, "a")
		nothing(t, g.Release(t.Context()))
		if err := g.Renew(t.Context(), ttl); !errors.Is(err, backend.ErrLost) {
			t.Errorf("renewal: want ErrLost, got %v", err)
		}
		if err := g.Release(t.Context()); !errors.Is(err, backend.ErrLost) {
			t.Errorf("second release: want ErrLost, got %v", err)
		}
		take(t, l, "b")
	}
}

// A Release that waits for a Renew ends with its context, and the next one releases.
func TestReleaseDuringARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		l := record.New(m, record.Options{})
		g := take(t, l, "a")
		silent := make(chan struct{})
		m.failing(func(op string) error {
			if op == "write" {
				<-silent
			}
			return nil
		})
		var renewed sync.WaitGroup
		renewed.Go(func() {
			if err := g.Renew(t.Context(), ttl); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		if err := g.Release(ctx); !errors.Is(err, context.DeadlineExceeded) || backend.OutcomeUnknown(err) {
			t.Errorf("want the end of the context, got %v", err)
		}
		if took := time.Since(begun); took != time.Second {
			t.Errorf("it took %v", took)
		}
		close(silent)
		renewed.Wait()
		nothing(t, g.Release(t.Context()))
		take(t, l, "b")
	})
}

// A driver may keep connections for holders: a grant is renewed and released with the Store for that.
func TestStoreOfHolders(t *testing.T) {
	m := newMemory()
	held := &slow{memory: m}
	others := &slow{memory: m}
	g := take(t, record.New(others, record.Options{Held: held}), "a")
	asked := others.requests.Load()
	nothing(t, g.Renew(t.Context(), ttl))
	nothing(t, g.Release(t.Context()))
	if others.requests.Load() != asked || held.requests.Load() == 0 {
		t.Errorf("%d requests of the holder with the other Store, %d with its own", others.requests.Load()-asked, held.requests.Load())
	}
}

// A proxy may send a write twice: the first is executed, and the reply to the second says that the record has changed.
// It has changed to what the client wrote, so that is no loss, and a release that was sent twice is a release.
func TestWritesSentTwice(t *testing.T) {
	m := newMemory()
	m.failing(func(op string) error {
		if op == "write" {
			m.fail = nil // once
			return record.ErrChanged
		}
		return nil
	})
	twice := m.fail
	l := record.New(m, record.Options{})
	g := take(t, l, "a")
	for range 2 {
		m.failing(twice)
		nothing(t, g.Renew(t.Context(), ttl))
	}
	refused(t, record.New(m, record.Options{}), "b", "a")
	m.failing(twice)
	nothing(t, g.Release(t.Context()))
	other := take(t, l, "b")
	m.failing(twice)
	nothing(t, other.Release(t.Context()))
	if err := other.Renew(t.Context(), ttl); !errors.Is(err, backend.ErrLost) {
		t.Errorf("a renewal after the release: want ErrLost, got %v", err)
	}
	free := take(t, l, "c")
	if _, err := l.Break(t.Context(), "k", "c"); err != nil {
		t.Fatal(err)
	}
	if err := free.Release(t.Context()); !errors.Is(err, backend.ErrLost) {
		t.Errorf("a release after a break: want ErrLost, got %v", err)
	}
}
