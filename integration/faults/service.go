package faults

import (
	"context"
	"errors"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/faults/workload"
	"github.com/interlock-go/lock/integration/provision"
)

// Service is a backend under test, with its servers and their faults. Its runs are sequential.
type Service struct {
	Name  string
	TTL   time.Duration // zero: 2 s
	Slack time.Duration // zero: 20 s; added to declared bounds, because machines are busy, and never to exclusion
	Judge time.Duration // how long the model checker may take for a key, zero: 5 min
	// Share is the inverse of the part of the time in which workers work, so that services can share a small machine;
	// zero: 8. At 1 workers never rest.
	Share int
	// URL is opened by the clients of this process, with the addresses of a session's
	// proxies, one for each of Upstreams; or as it is, if there are none.
	URL       func(addrs []string) string
	Upstreams []string
	// Direct is opened by processes, and by the session that looks for orphans.
	Direct string
	// Open replaces opening the URL of a client, for backends that have none.
	Open func(ctx context.Context, url string) (backend.Backend, error)
	// Command runs a process that calls workload.Main; nil if there is none.
	Command func() *exec.Cmd
	// ClockCommand is Command with a clock that is wrong.
	ClockCommand func(t testing.TB) func(off time.Duration) *exec.Cmd
	// Faults of its servers.
	Faults []Fault
	// Server may be frozen, killed and restarted.
	Server *provision.Server

	tokens map[string]uint64 // by key, the last of the runs before
}

func (s *Service) ttl() time.Duration {
	if s.TTL > 0 {
		return s.TTL
	}
	return 2 * time.Second
}

func (s *Service) slack() time.Duration {
	if s.Slack > 0 {
		return s.Slack
	}
	return 20 * time.Second
}

func (s *Service) judge() time.Duration {
	if s.Judge > 0 {
		return s.Judge
	}
	return 5 * time.Minute
}

func (s *Service) share() time.Duration {
	if s.Share > 0 {
		return time.Duration(s.Share)
	}
	return 8
}

func (s *Service) open(ctx context.Context, url string) (*lock.Client, error) {
	if s.Open == nil {
		return lock.Open(ctx, url, workload.Options(s.ttl())...)
	}
	b, err := s.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	c, err := lock.New(b, workload.Options(s.ttl())...)
	if err != nil {
		return nil, errors.Join(err, b.Close(ctx))
	}
	return c, nil
}

// session is a client of this process with its own proxies.
type session struct {
	*workload.Client
	lock    *lock.Client
	proxies []*provision.Proxy
	started bool
	done    chan struct{}
}

// each calls do for all proxies of a session.
func (s *session) each(do func(*provision.Proxy)) {
	var all sync.WaitGroup
	for _, p := range s.proxies {
		all.Go(func() { do(p) })
	}
	all.Wait()
}

func (s *session) heal() error {
	var errs []error
	for _, p := range s.proxies {
		errs = append(errs, p.Heal())
	}
	return errors.Join(errs...)
}
