package elect_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/clienttest"
	"github.com/interlock-go/lock/memlock"
)

var (
	newClient = clienttest.NewClient
	wantErr   = clienttest.WantErr
)

// service is a backend in memory whose requests a test can make fail.
type service struct {
	*memlock.Backend
	admin *lock.Client // of the same locks, and none of its requests fails

	mu    sync.Mutex
	calls map[string]int // by operation: "acquire" or "renew"
	// fail, if set, returns the error of the nth request of an operation.
	fail func(op string, n int) error
}

func newService(t *testing.T, space *memlock.Space) *service {
	t.Helper()
	return &service{Backend: space.Backend(), admin: newClient(t, space.Backend()), calls: map[string]int{}}
}

func (s *service) call(op string) error {
	s.mu.Lock()
	s.calls[op]++
	n, fail := s.calls[op], s.fail
	s.mu.Unlock()
	if fail == nil {
		return nil
	}
	return fail(op, n)
}

func (s *service) count(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

func (s *service) setFail(fail func(op string, n int) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

// holder returns the holder of name, or nil.
func (s *service) holder(t *testing.T, name string) *lock.Holder {
	t.Helper()
	info, err := s.admin.Inspect(context.Background(), name)
	if err != nil {
		t.Error(err)
	}
	return info.Holder
}

// take makes another client the holder of name for ttl.
func (s *service) take(t *testing.T, name string, ttl time.Duration) {
	t.Helper()
	if _, err := s.admin.Break(context.Background(), name); err != nil {
		t.Error(err)
	}
	if _, err := s.admin.Mutex(name, lock.WithTTL(ttl), lock.WithoutRenewal()).TryLock(context.Background()); err != nil {
		t.Error(err)
	}
}

func (s *service) TryAcquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	if err := s.call("acquire"); err != nil {
		return nil, err
	}
	return s.granted(s.Backend.TryAcquire(ctx, req))
}

func (s *service) Acquire(ctx context.Context, req backend.Request) (backend.Grant, error) {
	if err := s.call("acquire"); err != nil {
		return nil, err
	}
	return s.granted(s.Backend.Acquire(ctx, req))
}

func (s *service) granted(g backend.Grant, err error) (backend.Grant, error) {
	if err != nil {
		return nil, err
	}
	return &serviceGrant{g, s}, nil
}

type serviceGrant struct {
	backend.Grant
	s *service
}

func (g *serviceGrant) Renew(ctx context.Context, ttl time.Duration) error {
	if err := g.s.call("renew"); err != nil {
		return err
	}
	return g.Grant.Renew(ctx, ttl)
}

var errNet = errors.New("connection reset")

// foreign is a Mutex that is not of the package lock.
type foreign struct{ lock.Mutex }
