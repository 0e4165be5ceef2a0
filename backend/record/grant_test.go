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
