package placestest

import (
	"fmt"
	"testing"

	"github.com/interlock-go/lock/backend/places"
)

func TestClient(t *testing.T) {
	for _, views := range []bool{false, true} {
		t.Run(fmt.Sprintf("views %v", views), func(t *testing.T) { testClient(t, views) })
	}
}

func testClient(t *testing.T, views bool) {
	var s *Server
	var of *testing.T
	Test(t, Harness{Virtual: true, Open: func(t *testing.T) places.Service {
		if of != t { // a server lives in the virtual time of one check
			s, of = NewServer(), t
			s.Views = views
		}
		return s.Client().Service()
	}})
}
