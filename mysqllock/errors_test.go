package mysqllock

import (
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/interlock-go/lock/backend"
)

// An error that a proxy relays of its own connection leaves the outcome unknown, and the
// named locks of that session may be free.
func TestClassify(t *testing.T) {
	for number, lost := range map[uint16]bool{1064: false, 1205: false, 2006: true, 2013: true, 2999: true, 3058: false, errShutdown: true} {
		err := error(&mysql.MySQLError{Number: number, Message: "Lost connection to server during query"})
		if unknown := backend.OutcomeUnknown(classify(err)); unknown != lost {
			t.Errorf("error %d: want the outcome unknown: %v, got %v", number, lost, unknown)
		}
		if sessionEnded(err) != lost {
			t.Errorf("error %d: want the session ended: %v", number, lost)
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
