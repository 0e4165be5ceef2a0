package faults_test

import (
	"flag"
	"testing"

	"github.com/interlock-go/lock/integration/faults/workload"
	"github.com/interlock-go/lock/integration/provision"
)

func TestMain(m *testing.M) {
	workload.Main() // processes that are stopped and killed
	if err := provision.ServeNames(); err != nil {
		panic(err)
	}
	// Runs mostly wait, so services run at the same time on any number of processors. The
	// command line has precedence.
	_ = flag.Set("test.parallel", "32")
	provision.Main(m)
}
