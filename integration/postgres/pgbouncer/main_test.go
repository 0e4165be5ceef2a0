// Package pgbouncer_test runs the conformance suite against PostgreSQL behind PgBouncer
// in transaction mode. It is a package of its own so that it runs in parallel.
package pgbouncer_test

import (
	"testing"

	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/provision"
	_ "github.com/interlock-go/lock/pglock"
)

func TestMain(m *testing.M) {
	conformance.WorkerMain() // processes that the suite kills and stops
	provision.Main(m)
}
