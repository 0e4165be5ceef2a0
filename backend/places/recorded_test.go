package places_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places"
	"github.com/interlock-go/lock/backend/places/placestest"
)

// slowAnswers is a Service whose answers to Put arrive a second late while slow is set.
type slowAnswers struct {
	places.Service
	places.Viewer
	slow atomic.Bool
}

func (s *slowAnswers) Put(ctx context.Context, p places.Put) (places.Answer, error) {
	slow := s.slow.Load()
	a, err := s.Service.Put(ctx, p)
	if slow {
		time.Sleep(time.Second)
	}
	return a, err
}

// A place whose slots another attempt of the process records before the answer to its Put is granted.
func TestRecordedBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := placestest.NewServer()
		s.Views = true
		service := &slowAnswers{}
		p := openWith(t, s, func(inner places.Service) places.Service {
			service.Service, service.Viewer = inner, inner.(places.Viewer)
			return service
		})
		permits := func(n int) backend.Request { return request(backend.Share{Weight: n, Capacity: 3}) }
		g := try(t, open(t, s), permits(3))
		first := acquire(t, p, permits(1))
		service.slow.Store(true)
		second := acquire(t, p, permits(2))
		release(t, g)
		settle()
		g = first.granted(t)
		if second.done() {
			t.Fatal("the answer to the Put was not late")
		}
		time.Sleep(time.Second)
		release(t, second.granted(t))
		release(t, g)
		free(t, s)
	})
}
