package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/pglock"
)

// TestLateReplyKeepsConnection: the context of a request ends while the server works on it. The server then cancels
// the statement, and the connection stays. On a link that stays silent the connection is closed.
func TestLateReplyKeepsConnection(t *testing.T) {
	s, admin := server(t)
	proxy := provision.NewProxy(t, s.Addr())
	pool := poolOf(t, strings.Replace(pgtest.With(s, nil), s.Addr(), proxy.Addr(), 1), 1)
	b, err := pglock.New(pool)
	must(t, err)
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	g, err := b.TryAcquire(t.Context(), request("free", time.Hour))
	must(t, err)
	must(t, g.Release(t.Context()))
	late := func(key string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		if _, err := b.TryAcquire(ctx, request(key, time.Hour)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("want context.DeadlineExceeded, got %v", err)
		}
	}
	usable := func() {
		t.Helper()
		must(t, b.Ping(t.Context()))
	}
	opened := pool.Stat().NewConnsCount()

	tx, err := admin.Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "SELECT FROM interlock FOR UPDATE") // for long, as a transaction with Guard
	must(t, err)
	late("free")
	usable() // while the row is still locked
	must(t, tx.Rollback(t.Context()))
	if n := pool.Stat().NewConnsCount() - opened; n != 0 {
		t.Errorf("want no new connection after a statement that waited for a row, got %d", n)
	}

	proxy.Stall()
	late("other")
	must(t, proxy.Heal())
	usable()
	if n := pool.Stat().NewConnsCount() - opened; n != 0 {
		t.Errorf("want no new connection after a late reply, got %d", n)
	}

	proxy.BlackholeReplies()
	late("third")
	silent := time.Now()
	must(t, eventually(func() error {
		if n := pool.Stat().TotalConns(); n > 0 {
			return fmt.Errorf("want no connection over a silent link, got %d", n)
		}
		return nil
	}))
	if d := time.Since(silent); d > 10*time.Second { // pgx alone takes 15 s
		t.Errorf("a connection over a silent link kept its place in the pool for %v", d)
	}
	must(t, proxy.Heal())
	usable()
}

// TestLateRepliesLeaveConnections: late requests to acquire take no connection that is kept for renewals and releases.
func TestLateRepliesLeaveConnections(t *testing.T) {
	s, admin := server(t)
	pool := poolOf(t, pgtest.With(s, nil), 4)
	b, err := pglock.New(pool)
	must(t, err)
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	held, err := b.TryAcquire(t.Context(), request("held", time.Hour))
	must(t, err)
	g, err := b.TryAcquire(t.Context(), request("locked", time.Hour))
	must(t, err)
	must(t, g.Release(t.Context()))
	tx, err := admin.Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "SELECT FROM interlock WHERE name = $1 FOR UPDATE", pglock.Key(pglock.DefaultPrefix, "locked"))
	must(t, err)

	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := b.TryAcquire(ctx, request("locked", time.Hour)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("want context.DeadlineExceeded, got %v", err)
		}
		cancel()
	}
	if n := pool.Stat().AcquiredConns(); n > 3 {
		t.Errorf("late requests have %d connections of 4", n)
	}
	must(t, held.Renew(t.Context(), time.Hour))
}

// TestSilentConnections: all connections of a client die without a sign, also the one that listens. The first request
// without an answer finds them: the next one uses a new connection, and a waiter is granted what it was not notified of.
func TestSilentConnections(t *testing.T) {
	s, admin := server(t)
	st := &stage{T: t, s: s, admin: admin, b: open(t, pgtest.With(s, nil)), key: "silent"}
	b, proxy := st.behindProxy("application_name", "silent")
	g := st.try()
	got := waitFor(t, b, request(st.key, time.Hour))
	must(t, eventually(func() error { // it may ask again when notifications begin
		var busy int
		err := admin.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'silent'
			AND (state <> 'idle' OR state_change > clock_timestamp() - interval '300 ms')`).Scan(&busy)
		if err == nil && busy > 0 {
			err = fmt.Errorf("%d connections are busy", busy)
		}
		return err
	}))
	proxy.SilenceOpen()
	must(t, g.Release(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := b.TryAcquire(ctx, request("other", time.Hour)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a request on a silent connection: want context.DeadlineExceeded, got %v", err)
	}
	begun := time.Now()
	must(t, b.Ping(t.Context()))
	if d := time.Since(begun); d > 2500*time.Millisecond {
		t.Errorf("the next request took %v", d)
	}
	st.next(got)
}
