// Package redlock_test runs the conformance suite, and faults of single nodes,
// against Redlock on five real Redis servers.
package redlock_test

import (
	"testing"

	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/provision"
	_ "github.com/interlock-go/lock/redislock/redlock"
)

func TestMain(m *testing.M) {
	conformance.WorkerMain() // processes that the suite kills and stops
	provision.Main(m)
}
