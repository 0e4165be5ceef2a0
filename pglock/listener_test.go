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
				serve(pgproto3.NewBackend(conn, conn), nil)
			}
		})
		b.opt.pooled.Store(false)
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
		if err := b.listener.wait(t.Context()); err != nil {
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
	b.listener.set(false, errors.New("refused"))
	var reports []error
	b.ReportStatus(func(_ string, err error) { reports = append(reports, err) })
	if len(reports) != 1 || reports[0] == nil {
		t.Errorf("want one report with an error, got %v", reports)
	}
}
