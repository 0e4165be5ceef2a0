// Package postgres_test runs the conformance suite against real PostgreSQL servers, and
// the tests of what is specific to PostgreSQL.
package postgres_test

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
