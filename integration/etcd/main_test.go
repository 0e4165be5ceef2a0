// Package etcd_test runs the conformance suite against real etcd servers: one node
// in every flavour, and three nodes.
package etcd_test

import (
	"testing"

	"github.com/interlock-go/lock/conformance"
	_ "github.com/interlock-go/lock/etcdlock"
	"github.com/interlock-go/lock/integration/provision"
)

func TestMain(m *testing.M) {
	conformance.WorkerMain() // processes that the suite kills and stops
	provision.Main(m)
}
