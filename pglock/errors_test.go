package pglock

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/interlock-go/lock/backend"
)

// TestFatalMayFollowTheCommit: after an error that ends the connection the outcome is
// unknown, also if the server's messages are localized.
func TestFatalMayFollowTheCommit(t *testing.T) {
	s := scripted(t, nil).svc
	for _, c := range []struct {
		severity, unlocalized string
		unknown               bool
	}{
		{"FATAL", "FATAL", true},
		{"ВАЖНО", "FATAL", true},
		{"PANIK", "PANIC", true},
		{"FATAL", "", true},
		{"ERROR", "", false},
		{"ОШИБКА", "ERROR", false},
	} {
		err := s.explain(t.Context(), t.Context(), &pgconn.PgError{Severity: c.severity, SeverityUnlocalized: c.unlocalized, Code: "57P01"})
		if backend.OutcomeUnknown(err) != c.unknown {
			t.Errorf("%s (%s): want outcome unknown: %v, got %v", c.severity, c.unlocalized, c.unknown, err)
		}
	}
}

// TestErrorTexts: an error is one line, has the address once and the words of the server,
// and matches no error of a context that has not ended.
func TestErrorTexts(t *testing.T) {
	closed, silent := listen(t), listen(t)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		url, address, says string
	}{
		"refused":            {"postgres://u:secret@" + closed.Addr().String() + "/db", closed.Addr().String(), "connection refused"},
		"silent":             {"postgres://u:secret@" + silent.Addr().String() + "/db?dial_timeout=50ms", silent.Addr().String(), "timeout"},
		"silent, two bounds": {"postgres://u:secret@" + silent.Addr().String() + "/db?timeout=20ms&dial_timeout=5s", silent.Addr().String(), "no connection within 20ms"},
	} {
		u, err := backend.ParseURL(c.url)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Open(context.Background(), u)
		checkText(t, name, err, c.address, c.says)
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // may be closed already
	return l
}

func checkText(t *testing.T, what string, err error, address, says string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: want an error", what)
		return
	}
	text := err.Error()
	if strings.Count(text, address) != 1 || !strings.Contains(text, says) || strings.Contains(text, "\n") || strings.Contains(text, "secret") {
		t.Errorf("%s: want one line with %s once, %q and no password, got %q", what, address, says, text)
	}
	if strings.Count(text, "outcome unknown") > 1 {
		t.Errorf("%s: want the outcome once, got %q", what, text)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || strings.Contains(text, "(context") {
		t.Errorf("%s: no context has ended, got %q", what, text)
	}
}

// TestStatementErrorTexts are errors of statements.
func TestStatementErrorTexts(t *testing.T) {
	for name, c := range map[string]struct {
		reply reply
		says  string
	}{
		"rights":       {reply{failed: "42501"}, "(SQLSTATE 42501) (rights needed"},
		"no functions": {reply{failed: noFunction}, "as \"interlock_rule_"},
		"no table":     {reply{failed: "42P01"}, "the table \"interlock\" or \"interlock_places\" is missing"},
		"no answer":    {reply{after: time.Hour}, "outcome unknown: postgres at 127.0.0.1:5432: no answer within 5s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := scripted(t, []reply{c.reply})
				b.svc.opt.create = false
				checkText(t, name, renewOnce(context.Background(), b), "127.0.0.1:5432", c.says)
			})
		})
	}
}

// TestMicro: a TTL is rounded up, and the longest one does not overflow.
func TestMicro(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 0, 1: 1, 1000: 1, 1001: 2, 1<<63 - 1: 9223372036854776} {
		if got := micro(d); got != want {
			t.Errorf("%d ns: want %d us, got %d", d, want, got)
		}
	}
}
