// Package nats_test runs the conformance suite against real NATS servers.
package nats_test

import (
	"testing"

	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/provision"
	_ "github.com/interlock-go/lock/natslock"
)

func TestMain(m *testing.M) {
	conformance.WorkerMain() // processes that the suite kills and stops
	provision.Main(m)
}
