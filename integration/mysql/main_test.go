// Package mysql_test runs the conformance suite, and the tests of mysqllock, against MySQL and
// MariaDB servers.
package mysql_test

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
