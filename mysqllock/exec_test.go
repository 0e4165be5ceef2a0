package mysqllock

import (
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/interlock-go/lock/backend"
)

// What a proxy says of its own connection to the server tells nothing of the statement,
// and names that were taken over it may be gone.
func TestErrorsOfProxies(t *testing.T) {
	for number, lost := range map[uint16]bool{1064: false, 1205: false, 2006: true, 2013: true, 2999: true, 3058: false, errShutdown: true} {
		err := error(&mysql.MySQLError{Number: number, Message: "Lost connection to server during query"})
		if uncertain := errors.Is(classify(err), backend.ErrUncertain); uncertain != lost {
			t.Errorf("error %d: want the outcome unknown: %v, got %v", number, lost, uncertain)
		}
		if broken(err) != lost {
			t.Errorf("error %d: want the session over: %v", number, lost)
		}
	}
}
