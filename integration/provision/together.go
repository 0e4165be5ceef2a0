package provision

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
)

// startTogether starts the servers of a cluster, from the image that Docker has of the kind or from a local binary. They
// start at the same time, because each of them serves only with a majority. They end with the test.
func startTogether(t testing.TB, k kind, size int, options func(i int) Options) []*Server {
	t.Helper()
	servers := make([]*Server, size)
	errs := make([]error, size)
	var wg sync.WaitGroup
	for i := range size {
		wg.Go(func() { servers[i], errs[i] = startMember(k, options(i)) })
	}
	wg.Wait()
	for _, s := range servers {
		if s != nil {
			s.endWith(t)
		}
	}
	if err := errors.Join(errs...); err != nil {
		unavailable(t, k, err)
	}
	record(k.flavour, servers[0].Version, fmt.Sprintf("%d nodes, %s", size, servers[0].Source))
	return servers
}

// startMember starts a server that talks to others on this machine's loopback interface.
func startMember(k kind, o Options) (*Server, error) {
	o.Binary = true
	if k.built == "" {
		return start(k, o)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*startTimeout)
	defer cancel()
	docker, image, err := presentImage(ctx, k)
	if err == nil {
		return startImage(ctx, docker, k, o, image)
	}
	s, other := start(k, o)
	if other != nil {
		return nil, errors.Join(err, other)
	}
	return s, nil
}
