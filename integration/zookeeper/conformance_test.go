package zookeeper_test

import (
	"context"
	"strings"
	"testing"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

func TestConformanceSingle(t *testing.T) {
	for _, flavour := range provision.ZooKeeperFlavours() {
		t.Run(flavour, func(t *testing.T) {
			conformance.Run(t, harness(t, provision.NewZooKeeper(t, flavour)), suite.Keep(t))
		})
	}
}

func TestConformanceEnsemble(t *testing.T) {
	for _, flavour := range provision.ZooKeeperFlavours() {
		t.Run(flavour, func(t *testing.T) { conformEnsemble(t, provision.ZooKeeperEnsemble(t, flavour, 3)) })
	}
}

func conformEnsemble(t *testing.T, e *provision.Ensemble) {
	url := "zk://" + strings.Join(e.Addrs(), ",")
	h := conformance.Harness{
		Name: e.Nodes[0].Flavour + ", three nodes",
		Open: func(ctx context.Context) (backend.Backend, error) { return suite.Open(ctx, url) },
		OpenPrefix: func(ctx context.Context, prefix string) (backend.Backend, error) {
			return suite.Open(ctx, suite.WithParams(url, map[string]string{"prefix": prefix}))
		},
		Budget:        budget,
		Worker:        conformance.Self(url),
		OwnGoroutines: suite.OwnGoroutines,
		Failover:      suite.Failover(e.Nodes, e.Leader),
	}
	inspectHooks(t, &h, e.Addrs())
	conformance.Run(t, h, suite.Keep(t))
}

func TestConformanceLocalHandOff(t *testing.T) {
	provision.LeaveOut(t, "local hand-off")
	conformance.Run(t, harness(t, provision.NewZooKeeper(t, provision.AnyZooKeeper)), suite.HandOff()...)
}

func TestConformanceCrowd(t *testing.T) {
	provision.LeaveOut(t, "ten thousand readers")
	conformance.Run(t, harness(t, provision.NewZooKeeper(t, provision.AnyZooKeeper)), suite.Crowd()...)
}
