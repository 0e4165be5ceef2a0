package record_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/record"
)

// timed is a memory whose service measures the time for which a record is kept.
type timed struct {
	*memory
	wrong time.Duration // how far its clock has jumped since the write
	asked int
}

func (m *timed) Start(context.Context, string, time.Duration) error { return nil }

func (m *timed) Elapsed(_ context.Context, _ string, item record.Item) (time.Duration, error) {
	m.asked++
	return time.Since(item.Written) + m.wrong, nil
}

func keep(t *testing.T, g backend.Grant, d time.Duration) {
	t.Helper()
	nothing(t, g.(backend.Keeper).Keep(t.Context(), d))
}

// An ended grant is kept for a time that may be shorter than its TTL. A client that comes later takes the lock when
// that has passed at the service, and asks the service once.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &timed{memory: newMemory()}
		keep(t, take(t, record.New(m, record.Options{}), "a"), 2*time.Second)
		time.Sleep(2*time.Second - time.Millisecond)
		l := record.New(m, record.Options{})
		refused(t, l, "b", "a")
		refused(t, l, "b", "a")
		if m.asked != 1 {
			t.Errorf("the service was asked %d times", m.asked)
		}
		time.Sleep(time.Millisecond)
		take(t, record.New(m, record.Options{}), "c")
	})
}

// A client that has seen the record for the time takes it, whether the service measures that or not, and whatever its
// clock says.
func TestKeptIsSeen(t *testing.T) {
	for what, store := range map[string]func(*memory) record.Store{
		"no timer":       func(m *memory) record.Store { return m },
		"an hour behind": func(m *memory) record.Store { return &timed{memory: m, wrong: -time.Hour} },
	} {
		synctest.Test(t, func(t *testing.T) {
			m := store(newMemory())
			g := take(t, record.New(m, record.Options{}), "a")
			l := record.New(m, record.Options{})
			refused(t, l, "b", "a")
			keep(t, g, time.Second)
			refused(t, l, "b", "a")
			time.Sleep(time.Second - time.Millisecond)
			refused(t, l, "b", "a")
			time.Sleep(time.Millisecond)
			if _, err := l.TryAcquire(t.Context(), request("b")); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
}

// The clock of the service ends no lease: it is asked only for what is kept.
func TestTimerEndsNoLease(t *testing.T) {
	m := &timed{memory: newMemory(), wrong: 24 * time.Hour}
	l := record.New(m, record.Options{})
	g := take(t, l, "a")
	refused(t, record.New(m, record.Options{}), "b", "a")
	nothing(t, g.Renew(t.Context(), ttl))
	refused(t, record.New(m, record.Options{}), "b", "a")
	if m.asked != 0 {
		t.Errorf("the service was asked %d times", m.asked)
	}
}

// A grant that is kept can be released, and one that was taken over is lost.
func TestKeepAndRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := record.New(&timed{memory: newMemory()}, record.Options{})
		g := take(t, l, "a")
		keep(t, g, time.Second)
		nothing(t, g.Release(t.Context()))
		g = take(t, l, "b")
		keep(t, g, time.Second)
		time.Sleep(time.Second)
		take(t, l, "c")
		if err := g.(backend.Keeper).Keep(t.Context(), time.Second); !errors.Is(err, backend.ErrLost) {
			t.Errorf("want ErrLost, got %v", err)
		}
	})
}
