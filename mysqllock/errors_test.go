package mysqllock

import (
	"context"
	"database/sql/driver"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/interlock-go/lock/backend"
)

// An error that a proxy relays of its own connection leaves the outcome unknown.
func TestClassify(t *testing.T) {
	for number, lost := range map[uint16]bool{1064: false, 1205: false, 2006: true, 2013: true, 2999: true, errShutdown: true} {
		err := error(&mysql.MySQLError{Number: number, Message: "Lost connection to server during query"})
		if unknown := backend.OutcomeUnknown(classify(err)); unknown != lost {
			t.Errorf("error %d: want the outcome unknown: %v, got %v", number, lost, unknown)
		}
	}
	if backend.OutcomeUnknown(classify(driver.ErrBadConn)) || !backend.OutcomeUnknown(classify(errors.New("reset"))) {
		t.Error("want ErrBadConn, of which nothing was written, as not executed, and another error as unknown")
	}
}

// The error of an earlier try decides too: that try may have been executed.
func TestStillUncertain(t *testing.T) {
	refused := backend.NotExecuted(errors.New("refused"))
	for _, c := range []struct {
		earlier error
		unknown bool
	}{{backend.ErrClosed, false}, {refused, false}, {backend.Uncertain(refused), true}} {
		if err := stillUncertain(c.earlier, refused); backend.OutcomeUnknown(err) != c.unknown || !errors.Is(err, refused) {
			t.Errorf("after %v: want the outcome unknown: %v, got %v", c.earlier, c.unknown, err)
		}
	}
	if err := stillUncertain(backend.ErrUncertain, nil); err != nil {
		t.Errorf("want success, got %v", err)
	}
}

// TestOpenErrorTexts: an error is one line, has the address once, and matches no error of a
// context that has not ended.
func TestOpenErrorTexts(t *testing.T) {
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() }) // may be closed already
		return l
	}
	closed, silent, refusing := listen(), listen(), listen()
	go func() {
		for {
			conn, err := refusing.Accept()
			if err != nil {
				return // the test has ended
			}
			const packet = "\xff\x6a\x04Host is not allowed to connect" // error 1130
			_, _ = conn.Write([]byte("\x21\x00\x00\x00" + packet))
			_ = conn.Close()
		}
	}()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ address, parameters, says string }{
		"refused":               {closed.Addr().String(), "", "connection refused"},
		"refused by the server": {refusing.Addr().String(), "", "Host is not allowed"},
		"silent":                {silent.Addr().String(), "?timeout=50ms", "no connection within 50ms"},
	} {
		u, err := backend.ParseURL("mysql://u:secret@" + c.address + "/db" + c.parameters)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Open(context.Background(), u)
		if err == nil {
			t.Errorf("%s: want an error", name)
			continue
		}
		text := err.Error()
		if strings.Count(text, c.address) != 1 || strings.Count(text, "mysql") > 1 || !strings.Contains(text, c.says) || strings.ContainsAny(text, "\n") || strings.Contains(text, "secret") {
			t.Errorf("%s: want one line with %s once, %q and no password, got %q", name, c.address, c.says, text)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: no context has ended, got %q", name, text)
		}
	}
}
