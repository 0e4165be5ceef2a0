package isolation_test

import (
	"testing"

	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/mysql/mysqltest"
	"github.com/interlock-go/lock/integration/provision"
)

// meeting are the cases in which transactions meet, or their order matters.
const meeting = "^(exclusion|waiting/(08|09|10-|12-(fifo|try))|cancellation/16|release|fencing/3[12]|ambiguity/34-[^l])"

// TestConformance runs the whole suite at each level once. At SERIALIZABLE, where servers
// differ the most, it runs some cases on the other servers too.
func TestConformance(t *testing.T) {
	provision.LeaveOut(t, "isolation levels")
	for _, c := range []struct {
		flavour, level string
		opts           []conformance.Option
	}{
		{provision.MariaDB10, "READ-UNCOMMITTED", nil},
		{provision.MariaDB10, "READ-COMMITTED", nil},
		{provision.MariaDB11, "SERIALIZABLE", nil},
		{provision.MariaDB10, "SERIALIZABLE", []conformance.Option{conformance.Only(meeting)}},
		{provision.MySQL9, "SERIALIZABLE", []conformance.Option{conformance.Only(meeting)}},
	} {
		t.Run(c.flavour+"/"+c.level, func(t *testing.T) {
			s := provision.NewMySQL(t, c.flavour, provision.Options{Args: append(provision.MySQLUnsynced(), "--transaction-isolation="+c.level)})
			admin := provision.MySQLPool(t, s, nil)
			h := mysqltest.Harness(t, s, admin)
			if c.level == "SERIALIZABLE" && c.flavour != provision.MySQL9 {
				h.Budget.HandOffCommands += 2 // a statement that was rolled back is sent again
			}
			conformance.Run(t, h, c.opts...)
			mysqltest.NoDeadlocks(t, admin)
		})
	}
}
