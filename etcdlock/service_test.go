package etcdlock

import (
	"testing"

	"github.com/interlock-go/lock/backend/places"
	"github.com/interlock-go/lock/backend/places/placestest"
)

func TestService(t *testing.T) {
	placestest.Test(t, placestest.Harness{Open: func(t *testing.T) places.Service { return newBackend(t, server(t)).svc }})
}
