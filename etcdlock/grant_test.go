package etcdlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
)

// TestAnotherTTL renews to TTLs within that of the lease and beyond it.
func TestAnotherTTL(t *testing.T) {
	b := newBackend(t, server(t))
	req := request("k", time.Minute)
	g := try(t, b, req)
	token := g.Token()
	for _, ttl := range []time.Duration{50 * time.Second, 5 * time.Second, time.Minute} {
		before := time.Now()
		if err := g.Renew(t.Context(), ttl); err != nil {
			t.Fatal(err)
		}
		if left := g.Until().Sub(before); left > ttl+time.Second || left < ttl-2*time.Second {
			t.Errorf("renewed to %v: %v left", ttl, left)
		}
		i, err := b.Inspect(t.Context(), "k")
		if err != nil || i.Holder == nil || i.Holder.Token != token || i.Holder.Left < time.Minute-2*time.Second || g.Token() != token {
			t.Errorf("renewed to %v: %+v, %v", ttl, i.Holder, err)
		}
	}
	until := g.Until()
	if err := g.Renew(t.Context(), 61*time.Second); !errors.Is(err, backend.ErrInvalid) || g.Until().Before(until) {
		t.Errorf("Renew beyond the TTL of the lease: want ErrInvalid, got %v", err)
	}
	if err := g.Keep(t.Context(), time.Hour); err != nil {
		t.Errorf("Keep beyond the TTL of the lease: %v", err)
	}
	if n := len(b.Leases()); n != 1 {
		t.Errorf("want one lease, got %d", n)
	}
	if err := b.Abandon(t.Context(), req); err != nil {
		t.Error(err)
	}
	if err := g.Renew(t.Context(), 5*time.Second); !errors.Is(err, backend.ErrLost) {
		t.Errorf("after Abandon: want ErrLost, got %v", err)
	}
}

func TestPushesLoss(t *testing.T) {
	b := newBackend(t, server(t))
	for what, end := range map[string]func(g *grant) error{
		"break":  func(*grant) error { return second(b.Break(t.Context(), "k", "")) },
		"delete": func(g *grant) error { return second(b.client.Delete(t.Context(), g.key)) },
		"revoke": func(g *grant) error { return second(b.client.Revoke(t.Context(), g.s.id)) },
	} {
		req, lost := losable("k", time.Minute)
		g := try(t, b, req)
		if err := end(g); err != nil {
			t.Fatal(err)
		}
		wantLoss(t, what, lost)
		if err := g.Renew(t.Context(), time.Minute); !errors.Is(err, backend.ErrLost) {
			t.Errorf("%s: Renew: want ErrLost, got %v", what, err)
		}
		if err := g.Release(t.Context()); !errors.Is(err, backend.ErrLost) {
			t.Errorf("%s: Release: want ErrLost, got %v", what, err)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.attempts) > 0 {
		t.Errorf("%d attempts that have ended stay registered", len(b.attempts))
	}
}

// TestLossReportedByWatch deletes a held key when it is watched. Before that the read
// that follows the start of the watch could find the loss.
func TestLossReportedByWatch(t *testing.T) {
	addr := privately(t)
	b := newBackend(t, addr)
	req, lost := losable("k", time.Minute)
	g := try(t, b, req)
	eventually(t, "the key is not watched", func() bool { return serverWatches(t, addr) > 0 })
	// After a round trip the read that follows the start of the watch was most likely answered.
	if err := g.Renew(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := second(b.client.Delete(t.Context(), g.key)); err != nil {
		t.Fatal(err)
	}
	wantLoss(t, "delete", lost)
}

func wantLoss(t *testing.T, what string, lost <-chan error) {
	t.Helper()
	select {
	case err := <-lost:
		if !errors.Is(err, backend.ErrLost) {
			t.Errorf("%s: want ErrLost, got %v", what, err)
		}
	case <-time.After(soon):
		t.Errorf("%s: the loss was not reported", what)
	}
}

// TestKeyOfTheSameName deletes the key of a holder and puts it again.
func TestKeyOfTheSameName(t *testing.T) {
	b := newBackend(t, server(t))
	g := try(t, b, request("k", time.Minute))
	if err := errors.Join(second(b.client.Delete(t.Context(), g.key)), second(b.client.Put(t.Context(), g.key, ""))); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = b.client.Delete(context.Background(), g.key) }()
	if err := g.Renew(t.Context(), time.Minute); !errors.Is(err, backend.ErrLost) {
		t.Errorf("Renew of a key that was deleted and put again: want ErrLost, got %v", err)
	}
}

// TestGrantUnderADeadLease checks that the key of a grant that is lost at once is not
// watched.
func TestGrantUnderADeadLease(t *testing.T) {
	b := newBackend(t, server(t))
	req, lost := losable("k", time.Minute)
	s, err := b.session(t.Context(), req.TTL)
	if err != nil {
		t.Fatal(err)
	}
	defer s.leave()
	a := b.newAttempt(req)
	a.begin(s)
	s.endAsGone()
	g := a.newGrant(s, 1)
	if g.watchTimer.Stop() {
		t.Error("the key will be watched")
	}
	wantLoss(t, "the end of the lease", lost)
}
