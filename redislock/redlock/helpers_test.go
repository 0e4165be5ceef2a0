package redlock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/clienttest"
	"github.com/interlock-go/lock/redislock/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// Helpers that the tests of redislock share.
var (
	missing    = redistest.Missing
	freePort   = clienttest.FreePort
	start      = redistest.Start
	eventually = redistest.Eventually
	must       = redistest.Must
	get        = redistest.Get
)

type acquired = redistest.Acquired

// masters starts n independent servers and returns a client of each.
func masters(t *testing.T, n int) []redis.UniversalClient {
	t.Helper()
	var all []redis.UniversalClient
	for range n {
		addr, stop, err := start(freePort())
		if err != nil {
			missing(t, err)
		}
		t.Cleanup(stop)
		c := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = c.Close() })
		all = append(all, c)
	}
	return all
}

// newRedlock returns a Backend over clients. Its set of nodes has a name, because several Backends of
// a test may reach the same nodes by different addresses, through proxies.
func newRedlock(t *testing.T, clients []redis.UniversalClient, opts ...Option) *Backend {
	t.Helper()
	r, err := New(clients, append([]Option{WithNodeSet("test")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	return r
}

// redlockRequest returns the request of an attempt whose owner id is the number attempt.
func redlockRequest(key string, attempt int) backend.Request {
	return backend.Request{Key: key, Owner: fmt.Sprintf("%032x", attempt), TTL: 10 * time.Second, Metadata: "me"}
}
