package etcd_test

import (
	"testing"

	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

func TestConformance(t *testing.T) {
	for _, flavour := range provision.EtcdFlavours() {
		t.Run(flavour, func(t *testing.T) {
			s := provision.NewEtcd(t, flavour, provision.Options{})
			conformance.Run(t, harness(t, s, adminOf(t, s.Addr())), suite.Keep(t))
		})
	}
}

func TestConformanceLocalHandOff(t *testing.T) {
	provision.LeaveOut(t, "local hand-off")
	s := provision.NewEtcd(t, provision.AnyEtcd, provision.Options{})
	conformance.Run(t, harness(t, s, adminOf(t, s.Addr())), suite.HandOff()...)
}

func TestConformanceCrowd(t *testing.T) {
	provision.LeaveOut(t, "ten thousand readers")
	s := provision.NewEtcd(t, provision.AnyEtcd, provision.Options{})
	conformance.Run(t, harness(t, s, adminOf(t, s.Addr())), suite.Crowd()...)
}
