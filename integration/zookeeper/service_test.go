package zookeeper_test

import (
	"context"
	"strings"
	"testing"

	"github.com/interlock-go/lock/backend/places"
	"github.com/interlock-go/lock/backend/places/placestest"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/zklock"
)

// TestService shows that the driver keeps the rule of placestest.
func TestService(t *testing.T) {
	for _, flavour := range provision.ZooKeeperFlavours() {
		t.Run(flavour, func(t *testing.T) { testService(t, "zk://"+provision.NewZooKeeper(t, flavour).Addr()) })
	}
}

// TestServiceOfEnsemble has processes at servers that may not know yet what was done at another one.
func TestServiceOfEnsemble(t *testing.T) {
	testService(t, "zk://"+strings.Join(provision.ZooKeeperEnsemble(t, provision.ZooKeeper39, 3).Addrs(), ","))
}

func testService(t *testing.T, url string) {
	placestest.Test(t, placestest.Harness{Open: func(t *testing.T) places.Service {
		b, err := suite.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close(context.Background()) })
		return b.(*zklock.Backend).Service()
	}})
}
