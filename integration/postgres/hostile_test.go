package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// read reads one text of the rows of a lock and its waiter.
func (h *hostile) read(expression, key string) (text string) {
	h.Helper()
	must(h, h.conn.QueryRow(h.Context(), "SELECT "+expression+` FROM interlock l
		LEFT JOIN interlock_places w ON w.name = l.name AND w.kind = 'w' WHERE l.name = $1`, []byte("lock:"+key)).Scan(&text))
	return text
}

// notify sends what a function of the driver sends to a process, about an attempt.
func (h *hostile) notify(process, event, key, owner string, more ...any) {
	h.Helper()
	payload := fmt.Sprintf("%s %x %s", event, "lock:"+key, owner)
	for _, m := range more {
		payload += fmt.Sprint(" ", m)
	}
	_, err := h.conn.Exec(h.Context(), "SELECT pg_notify($1, $2)", "interlock_"+process, payload)
	must(h, err)
}

// grant sends a grant, as a release does, with what follows the slots.
func (h *hostile) grant(process, key, owner string, more ...any) {
	h.Helper()
	expires := time.Now().Add(3 * time.Second).UnixMicro()
	h.notify(process, "granted", key, owner, append([]any{hostileToken, expires, 3000000, ""}, more...)...)
}

const hostileToken = 999

// TestHostileReaderListens: a secret that a hostile role receives proves nothing after that.
func TestHostileReaderListens(t *testing.T) {
	st := newStage(t)
	b := open(t, pgtest.With(st.s, nil))
	sql(t, st.admin, "CREATE ROLE hostile LOGIN; GRANT SELECT ON interlock, interlock_places TO hostile")
	h := newHostile(t, st.s)
	held := st.try()
	reader := waitFor(t, b, st.share(backend.Reader))
	process := h.read("w.process", st.key)
	_, err := h.conn.Exec(t.Context(), "LISTEN interlock_"+process)
	must(t, err)
	must(t, held.Release(t.Context()))
	n, err := h.conn.WaitForNotification(t.Context())
	must(t, err)
	f := strings.Split(n.Payload, " ")
	secret := f[len(f)-1]
	if f[0] != "granted" || len(secret) != 32 {
		t.Fatalf("want a grant with a secret, got %s", n.Payload)
	}
	g := st.next(reader)
	must(t, g.Renew(t.Context(), time.Hour))

	writer := st.share(backend.Share{})
	got := waitFor(t, b, writer)
	h.grant(process, st.key, writer.Owner, secret)
	other := st.beside(t, "barrier")
	held = other.try()
	barrier := waitFor(t, b, other.share(backend.Share{}))
	must(t, held.Release(t.Context()))
	must(t, other.next(barrier).Release(t.Context()))
	select {
	case o := <-got:
		t.Fatalf("a writer was granted beside a reader: %v, %v", o.g, o.err)
	default:
	}
	must(t, g.Release(t.Context()))
	if g := st.next(got); g.Token() == hostileToken {
		t.Error("the writer has the grant that the hostile role sent")
	}
}

// TestHostileReader: what a role without write access sends changes nothing.
func TestHostileReader(t *testing.T) {
	s, admin := server(t)
	a, b := open(t, pgtest.With(s, nil)), open(t, pgtest.With(s, nil, "listen_always", "true"))
	sql(t, admin, "CREATE ROLE hostile LOGIN; GRANT SELECT ON interlock, interlock_places TO hostile")
	h := newHostile(t, s)
	if _, err := h.conn.Exec(t.Context(), "UPDATE interlock SET token = token"); err == nil {
		t.Fatal("want a role that cannot write")
	}
	st := &stage{T: t, s: s, admin: admin, b: a, key: "k"}
	// handOver makes b a waiter and then the holder. The notifications to b that were sent
	// before have arrived.
	handOver := func(key string, before func(waiter backend.Request)) backend.Grant {
		t.Helper()
		held, err := a.TryAcquire(t.Context(), request(key, time.Hour))
		must(t, err)
		req := request(key, time.Hour)
		got := waitFor(t, b, req)
		before(req)
		must(t, held.Release(t.Context()))
		return st.next(got)
	}
	barrier := func() {
		t.Helper()
		must(t, handOver("barrier", func(backend.Request) {}).Release(t.Context()))
	}
	var process string // of b

	g := handOver("grant", func(waiter backend.Request) {
		process = h.read("w.process", "grant")
		h.grant(process, "grant", waiter.Owner)
		h.grant(process, "grant", waiter.Owner, h.read("l.proof", "grant"))
		h.grant(process, "grant", waiter.Owner, h.read("w.proof", "grant"))
		h.notify(process, "ends", "grant", waiter.Owner, time.Hour.Microseconds()) // nor does it wait for longer
		for _, event := range []string{"asked", "removed", "lost"} {
			h.notify(process, event, "grant", waiter.Owner)
		}
	})
	if got := h.read("l.token::text", "grant"); g.Token() == hostileToken || got != fmt.Sprint(g.Token()) {
		t.Errorf("a grant that the hostile role sent: want the token of the row, %s, got %d", got, g.Token())
	}
	must(t, g.Release(t.Context()))

	// A waiter keeps its place, and asks when the lease ends, whatever notifications say.
	short := request("place", 3*time.Second)
	_, err := a.TryAcquire(t.Context(), short)
	must(t, err)
	first := request("place", 5*time.Second) // an event delays it by no more than a part of that
	got := waitFor(t, b, first)
	second := waitFor(t, a, request("place", time.Hour))
	h.notify(process, "removed", "place", first.Owner)
	h.notify(process, "ends", "place", first.Owner, time.Hour.Microseconds())
	g = st.next(got)
	must(t, g.Release(t.Context()))
	must(t, st.next(second).Release(t.Context()))

	var broken atomic.Bool
	lost, req := make(chan error, 2), request("loss", time.Hour)
	req.OnLost = func(err error) {
		if !broken.Load() {
			t.Error("OnLost was called for a lock that is held")
		}
		lost <- err
	}
	g, err = b.TryAcquire(t.Context(), req)
	must(t, err)
	for _, event := range []string{"lost", "removed", "asked"} {
		h.notify(process, event, "loss", req.Owner)
	}
	h.notify(process, "lost", "another", req.Owner) // the server would say that it does not hold this one
	barrier()
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

	// What is sent of an attempt that the process does not know makes it end the attempt, if it is its own.
	// Package lock always sets OnLost.
	ofB, ofA, waits := request("held by b", time.Hour), request("held by a", time.Hour), request("held by a", time.Hour)
	ofB.OnLost = func(error) { t.Error("OnLost was called for a lock that is held") }
	held, err := b.TryAcquire(t.Context(), ofB)
	must(t, err)
	other, err := a.TryAcquire(t.Context(), ofA)
	must(t, err)
	waiter := waitFor(t, a, waits)
	before, err := pgtest.Commands(t.Context(), admin)
	must(t, err)
	for _, req := range []backend.Request{ofB, ofA, waits} {
		h.grant(process, req.Key, req.Owner)
		for _, event := range []string{"asked", "removed", "lost"} {
			h.notify(process, event, req.Key, req.Owner)
		}
	}
	must(t, eventually(func() error { // b tries to release what it does not know
		n, err := pgtest.Commands(t.Context(), admin)
		if err == nil && n < before+3 {
			err = errors.New("no statements of b")
		}
		return err
	}))
	barrier()
	if err := held.Renew(t.Context(), time.Hour); err != nil {
		t.Errorf("a grant that is sent to its holder: want the lock kept, got %v", err)
	}
	if err := other.Renew(t.Context(), time.Hour); err != nil {
		t.Errorf("a grant that is sent to another process than its holder's: want the lock kept, got %v", err)
	}
	must(t, other.Release(t.Context()))
	st.next(waiter)
}
