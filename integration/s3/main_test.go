// Package s3_test runs the conformance suite against real servers of S3.
package s3_test

import (
	"os"
	"testing"

	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/provision"
	_ "github.com/interlock-go/lock/s3lock"
)

func TestMain(m *testing.M) {
	// The SDK asks nothing but the servers of the tests.
	for name, value := range map[string]string{"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	conformance.WorkerMain() // processes that the suite kills and stops
	provision.Main(m)
}
