package mysql_test

import (
	"testing"

	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/mysql/mysqltest"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

func TestConformance(t *testing.T) {
	for _, flavour := range provision.MySQLFlavours() {
		t.Run(flavour, func(t *testing.T) {
			if flavour == provision.MariaDB11 { // the other tests run on it
				provision.LeaveOut(t, "the suite on "+flavour)
			}
			s := provision.NewMySQL(t, flavour, provision.Options{Args: provision.MySQLUnsynced()})
			admin := provision.MySQLPool(t, s, nil)
			conformance.Run(t, mysqltest.Harness(t, s, admin), suite.Keep(t))
			mysqltest.NoDeadlocks(t, admin)
		})
	}
}

func TestConformanceLocalHandOff(t *testing.T) {
	provision.LeaveOut(t, "local hand-off")
	s := provision.NewMySQL(t, provision.MySQL9, provision.Options{Args: provision.MySQLUnsynced()})
	conformance.Run(t, mysqltest.Harness(t, s, provision.MySQLPool(t, s, nil)), suite.HandOff()...)
}

func TestConformanceCrowd(t *testing.T) {
	provision.LeaveOut(t, "ten thousand readers")
	everyFlavour(t, func(t *testing.T, s *provision.Server) {
		conformance.Run(t, mysqltest.Harness(t, s, provision.MySQLPool(t, s, nil)), suite.Crowd()...)
	})
}
