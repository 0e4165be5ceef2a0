package places_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places"
	"github.com/interlock-go/lock/backend/places/placestest"
)

// lagging is a Service in which the end of one place is reported late.
type lagging struct {
	places.Service
	reads bool // the report comes after the next Read, but before its answer

	mu    sync.Mutex
	place string
	late  []func()
}

func (l *lagging) lag(place string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.place = place
}

func (l *lagging) Watch(
	ctx context.Context, key string, p places.Place, changed func(places.Place, places.Change),
) (stop func(), checked bool, err error) {
	return l.Service.Watch(ctx, key, p, func(p places.Place, c places.Change) {
		l.mu.Lock()
		lags := l.place == p.ID && c == places.Ended
		if lags {
			l.late = append(l.late, func() { changed(p, c) })
		}
		l.mu.Unlock()
		if !lags {
			changed(p, c)
		}
	})
}

func (l *lagging) Read(ctx context.Context, key string, upTo uint64, last int) (places.Queue, error) {
	q, err := l.Service.Read(ctx, key, upTo, last)
	if l.reads {
		l.report()
	}
	return q, err
}

func (l *lagging) report() {
	l.mu.Lock()
	late := l.late
	l.place, l.late = "", nil
	l.mu.Unlock()
	for _, f := range late {
		f()
	}
}

// A place that was put again is in the queue, although the event that the one before it has ended arrives later.
func TestPutAgainBeforeTheEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := placestest.NewServer()
		p, other := open(t, s), open(t, s)
		service := &lagging{reads: true}
		late := openWith(t, s, func(inner places.Service) places.Service {
			service.Service = inner
			return service
		})
		g := try(t, p, request(backend.Share{}))
		deleted := acquire(t, other, request(backend.Share{}))
		before := acquire(t, late, request(backend.Share{}))
		service.lag(s.Queue(key).Places[1].ID)
		s.Delete(deleted.req.Owner)
		time.Sleep(time.Second) // it is put again
		behind := acquire(t, late, request(backend.Share{}))
		before.end() // the line reads for the other one
		<-before.over
		if err := late.Abandon(t.Context(), before.req); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		release(t, g)
		time.Sleep(time.Second)
		g = deleted.granted(t)
		behind.waiting(t)
		release(t, g)
		time.Sleep(time.Second)
		release(t, behind.granted(t))
		free(t, s)
	})
}
