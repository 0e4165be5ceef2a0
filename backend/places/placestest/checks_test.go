package placestest

import (
	"testing"

	"github.com/interlock-go/lock/backend/places"
)

func TestClient(t *testing.T) {
	var s *Server
	var of *testing.T
	Test(t, Harness{Virtual: true, Open: func(t *testing.T) places.Service {
		if of != t { // a server lives in the virtual time of one check
			s, of = NewServer(), t
		}
		return s.Client()
	}})
}
