// Package zookeeper_test runs the conformance suite against real ZooKeeper
// servers, single and in an ensemble of three, and tests what is specific to
// ZooKeeper.
package zookeeper_test

import (
	"testing"

	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/provision"
	_ "github.com/interlock-go/lock/zklock"
)

func TestMain(m *testing.M) {
	conformance.WorkerMain() // processes that the suite kills and stops
	provision.Main(m)
}
