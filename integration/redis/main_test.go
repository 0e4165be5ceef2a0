// Package redis_test runs the conformance suite against real Redis and Valkey
// servers: standalone in every flavour, behind Sentinel, and in a cluster.
package redis_test

import (
	"testing"

	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/provision"
	_ "github.com/interlock-go/lock/redislock"
)

func TestMain(m *testing.M) {
	conformance.WorkerMain() // processes that the suite kills and stops
	provision.Main(m)
}
