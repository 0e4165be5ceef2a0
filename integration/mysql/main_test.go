// Package mysql_test runs the conformance suite, and the tests of mysqllock, against MySQL and
// MariaDB servers.
package mysql_test

import (
	"flag"
	"testing"

	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/provision"
	_ "github.com/interlock-go/lock/mysqllock"
)

func TestMain(m *testing.M) {
	conformance.WorkerMain()           // processes that the suite kills and stops
	_ = flag.Set("test.parallel", "6") // most of the tests beside the suite wait most of the time
	provision.Main(m)
}
