package nats_test

import (
	"context"
	"errors"
	"testing"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

func TestConformance(t *testing.T) {
	for _, flavour := range provision.NATSFlavours() {
		t.Run(flavour, func(t *testing.T) {
			s := provision.NewNATS(t, flavour, counted(t))
			conformance.Run(t, harness(t, s), suite.Keep(t))
		})
	}
}

func TestConformanceThreeNodes(t *testing.T) {
	c := provision.NATSCluster(t, provision.NATS2, 3, counted(t))
	url := c.URL()
	h := harness(t, c.Nodes[0])
	h.Name += ", three nodes"
	h.Open = func(ctx context.Context) (backend.Backend, error) { return suite.Open(ctx, url) }
	h.Worker = conformance.Self(url)
	// The service is all of its nodes. Tests of their own stop single nodes.
	h.StopServer = func(context.Context) error { return c.Each((*provision.Server).Pause) }
	h.ResumeServer = func(context.Context) error { return c.Each((*provision.Server).Resume) }
	h.RestartServer = func(ctx context.Context) error {
		if err := errors.Join(c.Each((*provision.Server).Kill), c.Each(func(s *provision.Server) error { return s.Restart(ctx) })); err != nil {
			return err
		}
		_, err := c.Leader(ctx, "locks")
		return err
	}
	h.Failover = suite.Failover(c.Nodes, func(ctx context.Context) (int, error) { return c.Leader(ctx, "locks") })
	h.ServerCommands = nil // nodes count the messages of each other
	conformance.Run(t, h, suite.Keep(t))
}
