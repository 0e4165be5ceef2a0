package pglock

import (
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/interlock-go/lock/backend"
)

// TestReportStatus: an outage of the listening connection is reported once with its
// error, however many attempts to connect fail, and its end once with nil.
func TestReportStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var server net.Conn
		refuse := false
		b := serving(t, func(conn net.Conn) {
			mu.Lock()
			server = conn
			refused := refuse
			mu.Unlock()
			if !refused {
				serve(pgproto3.NewBackend(conn, conn), func() reply { return reply{} })
			}
		})
		b.svc.opt.pooled.Store(false)
		var reports []error
		report := func(what string, err error) {
			mu.Lock()
			defer mu.Unlock()
			reports = append(reports, err)
		}
		want := func(when string, failed ...bool) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.EqualFunc(reports, failed, func(err error, failed bool) bool { return (err != nil) == failed }) {
				t.Errorf("%s: want reports of a failure: %v, got %v", when, failed, reports)
			}
		}
		cut := func(refused bool) {
			mu.Lock()
			defer mu.Unlock()
			refuse = refused
			_ = server.Close()
		}
		b.ReportStatus(report)
		if err := b.svc.listener.wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		want("connected")
		cut(true)
		time.Sleep(30 * time.Second)
		want("the server refuses connections", true)
		b.ReportStatus(report)
		want("set again during the outage", true)
		cut(false)
		time.Sleep(30 * time.Second)
		want("connected again", true, false)
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		want("closed", true, false)
	})
}

// TestReportStatusOfThePast: an outage that began before ReportStatus is reported.
func TestReportStatusOfThePast(t *testing.T) {
	b := serving(t, func(net.Conn) {})
	b.svc.listener.set(false, errors.New("refused"))
	var reports []error
	b.ReportStatus(func(_ string, err error) { reports = append(reports, err) })
	if len(reports) != 1 || reports[0] == nil {
		t.Errorf("want one report with an error, got %v", reports)
	}
}

// TestListenAlways: the listening connection is open when the backend is, stays without a
// waiter, and is opened again after a failure.
func TestListenAlways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var server net.Conn
		connections := 0
		b := serving(t, func(conn net.Conn) {
			mu.Lock()
			server, connections = conn, connections+1
			mu.Unlock()
			serve(pgproto3.NewBackend(conn, conn), func() reply { return reply{} })
		})
		b.svc.opt.pooled.Store(false)
		b.svc.opt.always = true
		if !b.Capabilities().PushesLoss {
			t.Error("want PushesLoss")
		}
		if err := b.svc.startListening(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := func(when string, again bool) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if up, _ := b.svc.listener.status(); !up || (connections > 1) != again { // a cancel request is a connection, too
				t.Errorf("%s: want a listener that is up and has connected again: %v, got %v and %d connections", when, again, up, connections)
			}
		}
		want("opened", false)
		time.Sleep(time.Hour)
		want("after an hour", false)
		mu.Lock()
		_ = server.Close()
		mu.Unlock()
		time.Sleep(2 * time.Minute)
		want("after a failure", true)
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestListenAlwaysRefused: a backend that cannot listen always is not opened.
func TestListenAlwaysRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := serving(t, func(net.Conn) {})
		b.svc.opt.always = true
		if err := b.svc.startListening(t.Context()); err == nil {
			t.Error("the server ends each connection: want an error, got nil")
		}
		if _, err := New(b.svc.pool, WithListenAlways(), WithoutListen()); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("WithListenAlways and WithoutListen: want ErrInvalid, got %v", err)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestListenerEnds: the listening connection ends a minute after the last wait, and the
// next waiter opens it again. It is no failure.
func TestListenerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := serving(t, func(server net.Conn) { serve(pgproto3.NewBackend(server, server), func() reply { return reply{} }) })
		b.svc.opt.pooled.Store(false)
		b.ReportStatus(func(_ string, err error) { t.Errorf("want no report, got %v", err) })
		up := func() bool { up, _ := b.svc.listener.status(); return up }
		for range 2 {
			b.svc.listener.use()
			if err := b.svc.listener.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
			if !up() {
				t.Error("the listener ended while an attempt waits")
			}
			b.svc.listener.unuse()
			time.Sleep(30 * time.Second)
			if !up() {
				t.Error("the listener ended within half a minute")
			}
			time.Sleep(time.Minute)
			if up() {
				t.Error("the listener is up more than a minute after the last wait")
			}
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
