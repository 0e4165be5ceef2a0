package redlock_test

import (
	"testing"

	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, harness(t, newSet(t, durable...)), conformance.RequireHooks(), suite.Keep(t))
}

func TestConformanceLocalHandOff(t *testing.T) {
	provision.LeaveOut(t, "local hand-off")
	conformance.Run(t, harness(t, newSet(t, durable...)), suite.HandOff()...)
}
