package redislock

import (
	"context"
	"fmt"
	"strings"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/redisurl"
)

func init() {
	for _, scheme := range []string{"redis", "rediss", "redis+sentinel", "redis+cluster"} {
		backend.Register(scheme, Open)
	}
}

// Open opens a backend from a URL, whose form is in the package documentation.
func Open(ctx context.Context, u *backend.URL) (backend.Backend, error) {
	s, err := redisurl.Parse(u)
	if err != nil {
		return nil, err
	}
	client := s.Client()
	ctx, cancel := context.WithTimeout(ctx, s.OpenTimeout())
	defer cancel()
	o := defaults()
	o.prefix, o.allowEviction, o.replicas, o.replicaTimeout = s.Prefix, s.AllowEviction, s.Replicas, s.ReplicaTimeout
	b, err := open(ctx, client, o)
	if err != nil {
		if s.Scheme == "redis+sentinel" {
			go client.Close() // it waits until the search for the master ends, by the timeouts of the client
		} else {
			_ = client.Close()
		}
		if addrs := strings.Join(s.Addrs, ","); !strings.Contains(err.Error(), addrs) {
			err = fmt.Errorf("%s at %s: %w", u.Scheme, addrs, err)
		}
		return nil, err
	}
	b.svc.srv.Own = true
	if s.Scheme == "redis+sentinel" {
		b.svc.followSentinels(s.Sentinels(), s.Master)
	}
	return b, nil
}
