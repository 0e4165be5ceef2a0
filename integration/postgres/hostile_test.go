package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/integration/provision"
)

// hostile is a role that may read the lock table and send notifications, and nothing else.
type hostile struct {
	*testing.T
	conn *pgx.Conn
}

func newHostile(t *testing.T, s *provision.Server) *hostile {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), as(pgtest.With(s, nil), "hostile"))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return &hostile{t, conn}
}

// read reads one text of the row of a lock.
func (h *hostile) read(expression, key string) (text string) {
	h.Helper()
	must(h, h.conn.QueryRow(h.Context(), "SELECT "+expression+" FROM interlock l LEFT JOIN interlock w ON w.name = l.name AND w.place > 0 WHERE l.name = $1 AND l.place = 0", []byte("lock:"+key)).Scan(&text))
	return text
}

func (h *hostile) notify(process, format string, args ...any) {
	h.Helper()
	_, err := h.conn.Exec(h.Context(), "SELECT pg_notify($1, $2)", "interlock_"+process, fmt.Sprintf(format, args...))
	must(h, err)
}

// grant sends a grant, as a release does, with what follows the name.
func (h *hostile) grant(process, owner, key, more string) {
	h.Helper()
	expires := time.Now().Add(3 * time.Second).UnixMicro()
	h.notify(process, "g %s %d %d 3000000 %x%s", owner, hostileToken, expires, "lock:"+key, more)
}

const hostileToken = 999

// TestHostileReader: what a role without write access sends changes nothing.
func TestHostileReader(t *testing.T) {
	s, admin := server(t)
	a, b := open(t, pgtest.With(s, nil)), open(t, pgtest.With(s, nil, "listen_always", "true"))
	sql(t, admin, "CREATE ROLE hostile LOGIN; GRANT SELECT ON interlock TO hostile")
	h := newHostile(t, s)
	if _, err := h.conn.Exec(t.Context(), "UPDATE interlock SET token = token"); err == nil {
		t.Fatal("want a role that cannot write")
	}
	// handOver makes b a waiter and then the holder. The notifications to b that were sent
	// before have arrived.
	handOver := func(key string, before func()) backend.Grant {
		t.Helper()
		held, err := a.TryAcquire(t.Context(), request(key, time.Hour))
		must(t, err)
		got := waitFor(t, b, request(key, time.Hour))
		before()
		must(t, held.Release(t.Context()))
		select {
		case o := <-got:
			must(t, o.err)
			return o.g
		case <-time.After(20 * time.Second):
			t.Fatal("the waiter was not granted within 20 s")
			return nil
		}
	}
	var process string // of b

	g := handOver("grant", func() {
		process = h.read("left(w.process, 16)", "grant")
		waiter := h.read("w.waiter", "grant")
		for _, more := range []string{"", " " + h.read("right(l.process, 32)", "grant"), " " + h.read("right(w.process, 32)", "grant")} {
			h.grant(process, waiter, "grant", more)
		}
		// Neither may it wait for longer.
		h.notify(process, "h %s %d %d", waiter, time.Now().Add(time.Hour).UnixMicro(), time.Hour.Microseconds())
	})
	if got := h.read("l.token::text", "grant"); g.Token() == hostileToken || got != fmt.Sprint(g.Token()) {
		t.Errorf("a grant that the hostile role sent: want the token of the row, %s, got %d", got, g.Token())
	}
	must(t, g.Release(t.Context()))

	var broken atomic.Bool
	lost, req := make(chan error, 2), request("loss", time.Hour)
	req.OnLost = func(err error) {
		if !broken.Load() {
			t.Error("OnLost was called for a lock that is held")
		}
		lost <- err
	}
	g, err := b.TryAcquire(t.Context(), req)
	must(t, err)
	h.notify(process, "l %s", req.Owner)
	must(t, handOver("barrier", func() {}).Release(t.Context()))
	must(t, g.Renew(t.Context(), time.Hour))
	broken.Store(true)
	_, err = a.Break(t.Context(), "loss", "")
	must(t, err)
	select {
	case err := <-lost:
		if !errors.Is(err, backend.ErrLost) {
			t.Errorf("a break: want ErrLost, got %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the holder was not notified of the break within 20 s")
	}

	ofB, ofA := request("held by b", time.Hour), request("held by a", time.Hour)
	held, err := b.TryAcquire(t.Context(), ofB)
	must(t, err)
	other, err := a.TryAcquire(t.Context(), ofA)
	must(t, err)
	before, err := pgtest.Commands(t.Context(), admin)
	must(t, err)
	h.grant(process, ofB.Owner, ofB.Key, "")
	h.grant(process, ofA.Owner, ofA.Key, "")
	must(t, eventually(func() error { // b releases what it takes for a grant of an ended attempt
		n, err := pgtest.Commands(t.Context(), admin)
		if err == nil && n == before {
			err = errors.New("no statement of b")
		}
		return err
	}))
	must(t, handOver("barrier", func() {}).Release(t.Context()))
	if err := held.Renew(t.Context(), time.Hour); err != nil {
		t.Errorf("a grant that is sent to its holder: want the lock kept, got %v", err)
	}
	if err := other.Renew(t.Context(), time.Hour); err != nil {
		t.Errorf("a grant that is sent to another process than its holder's: want the lock kept, got %v", err)
	}
}
