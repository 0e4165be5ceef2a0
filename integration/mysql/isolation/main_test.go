// Package isolation_test runs the conformance suite against MySQL and MariaDB servers at other
// isolation levels than the default. As a package of its own it runs beside that suite.
package isolation_test

import (
	"testing"

	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/provision"
	_ "github.com/interlock-go/lock/mysqllock"
)

func TestMain(m *testing.M) {
	conformance.WorkerMain() // processes that the suite kills and stops
	provision.Main(m)
}
