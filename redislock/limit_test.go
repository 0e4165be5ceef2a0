package redislock

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
)

// While the server answers no acquire, a connection is left to renewals and releases. The attempts that are not in the
// first batches have sent nothing: they cost no goroutine of the driver, and leave nothing.
func TestAcquiresLeaveConnections(t *testing.T) {
	px := newProxy(t, sharedServer(t))
	b := openURL(t, "redis://"+px.Addr+"?pool_size=4&read_timeout=1m&prefix="+newPrefix())
	g := take(t, b, request("k"))
	end := make(chan struct{})
	defer close(end)
	var hanging atomic.Int64
	px.Set(onScript(acquireScript, func() action { hanging.Add(1); <-end; return never }))
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const attempts = 300
	var unknown atomic.Int64
	var wg sync.WaitGroup
	for range attempts {
		wg.Go(func() {
			_, err := b.TryAcquire(ctx, request("k"))
			if !errors.Is(err, context.Canceled) {
				t.Errorf("acquire: %v", err)
			}
			if backend.OutcomeUnknown(err) {
				unknown.Add(1)
			}
		})
	}
	eventually(t, "the requests hang", func() bool { return hanging.Load() >= 2 })
	for range 20 {
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		must(t, g.Renew(limited, 10*time.Second))
		cancel()
	}
	if n := runtime.NumGoroutine() - before; n > attempts+50 {
		t.Errorf("%d goroutines for %d attempts", n, attempts)
	}
	cancel()
	wg.Wait()
	must(t, g.Release(t.Context()))
	if connections, sent := hanging.Load(), unknown.Load(); connections > 3 || sent >= attempts {
		t.Errorf("%d requests were sent over %d connections", sent, connections)
	}
}
