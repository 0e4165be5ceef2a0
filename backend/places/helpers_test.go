package places_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places"
	"github.com/interlock-go/lock/backend/places/placestest"
)

const (
	key = "key"
	ttl = 30 * time.Second
)

var owners atomic.Int64

// process is a process of a test.
type process struct {
	*places.Backend
	svc *placestest.Client
}

// inVirtualTime runs a test with a service in memory,
// once by watches of places, and once by views of queues.
func inVirtualTime(t *testing.T, f func(t *testing.T, s *placestest.Server)) {
	t.Helper()
	for _, views := range []bool{false, true} {
		t.Run(map[bool]string{false: "watches", true: "views"}[views], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := placestest.NewServer()
				s.Views = views
				f(t, s)
			})
		})
	}
}

func open(t *testing.T, s *placestest.Server) *process {
	t.Helper()
	return openWith(t, s, func(svc places.Service) places.Service { return svc })
}

// openWith opens a process whose Service is what wrap returns.
func openWith(t *testing.T, s *placestest.Server, wrap func(places.Service) places.Service) *process {
	t.Helper()
	svc := s.Client()
	b := places.New(wrap(svc.Service()), places.Config{
		SessionTTL: func(ttl time.Duration) time.Duration { return ttl }, RequestTimeout: 5 * time.Second,
	})
	svc.Use(b)
	t.Cleanup(func() {
		svc.Cut(false)
		svc.Inject(nil)
		if err := b.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return &process{b, svc}
}

func request(share backend.Share) backend.Request {
	return backend.Request{Key: key, Owner: fmt.Sprintf("%032x", owners.Add(1)), TTL: ttl, Metadata: "test", Share: share}
}

func try(t *testing.T, p *process, req backend.Request) backend.Grant {
	t.Helper()
	g, err := p.TryAcquire(t.Context(), req)
	if err != nil {
		t.Fatalf("TryAcquire: want a grant, got %v", err)
	}
	return g
}

func release(t *testing.T, g backend.Grant) {
	t.Helper()
	if err := g.Release(t.Context()); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

// attempt is an Acquire in the background.
type attempt struct {
	req   backend.Request
	waits atomic.Int32
	over  chan struct{} // closed when the fields below are set
	grant backend.Grant
	err   error
	at    time.Time
	end   context.CancelFunc
}

// acquire begins an Acquire, and returns when it waits or has ended.
func acquire(t *testing.T, p *process, req backend.Request) *attempt {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	a := &attempt{req: req, end: cancel, over: make(chan struct{})}
	req.OnWait = func(*backend.LockedError) { a.waits.Add(1) }
	go func() {
		a.grant, a.err = p.Acquire(ctx, req)
		a.at = time.Now()
		close(a.over)
	}()
	settle()
	return a
}

func (a *attempt) done() bool {
	select {
	case <-a.over:
		return true
	default:
		return false
	}
}

// settle lets what is under way finish.
func settle() {
	time.Sleep(50 * time.Millisecond)
	synctest.Wait()
}

// granted fails unless the attempt holds.
func (a *attempt) granted(t *testing.T) backend.Grant {
	t.Helper()
	synctest.Wait()
	if !a.done() || a.err != nil {
		t.Fatalf("want a grant, got done %v, %v", a.done(), a.err)
	}
	return a.grant
}

// waiting fails unless the attempt waits.
func (a *attempt) waiting(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if a.done() || a.waits.Load() != 1 {
		t.Fatalf("want it to wait, got done %v, OnWait called %d times", a.done(), a.waits.Load())
	}
}

func free(t *testing.T, s *placestest.Server) {
	t.Helper()
	settle()
	if q := s.Queue(key); len(q.Places) > 0 {
		t.Errorf("left: %+v", q.Places)
	}
}

// losable returns a request, and the error of its loss.
func losable(share backend.Share) (backend.Request, *atomic.Pointer[error]) {
	lost := &atomic.Pointer[error]{}
	req := request(share)
	req.OnLost = func(err error) { lost.Store(&err) }
	return req, lost
}

func wantLost(t *testing.T, what string, g backend.Grant, lost *atomic.Pointer[error]) {
	t.Helper()
	settle()
	if err := lost.Load(); err == nil || !errors.Is(*err, backend.ErrLost) {
		t.Fatalf("%s: the loss was not reported", what)
	}
	if err := g.Renew(t.Context(), ttl); !errors.Is(err, backend.ErrLost) {
		t.Errorf("%s: Renew: want ErrLost, got %v", what, err)
	}
	if err := g.Release(t.Context()); !errors.Is(err, backend.ErrLost) {
		t.Errorf("%s: Release: want ErrLost, got %v", what, err)
	}
}
