package redislock

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/redistest"
)

// together makes attempts, each for a lock of its own. The first two messages to the server have one each, and the third has
// many. act is what becomes of that. It returns the errors.
func together(t *testing.T, b *Backend, px *redistest.Proxy, act action) (reqs []backend.Request, errs []error) {
	t.Helper()
	const attempts = 30
	var messages atomic.Int64
	first, third := make(chan struct{}), make(chan struct{})
	px.Set(onScript(acquireScript, func() action {
		switch messages.Add(1) {
		case 1, 2:
			<-first
		case 3:
			close(third)
			return act
		}
		return pass
	}))
	defer px.Set(nil)
	errs = make([]error, attempts)
	for i := range attempts {
		reqs = append(reqs, request(fmt.Sprint("k", i)))
	}
	var wg sync.WaitGroup
	for i := range attempts {
		wg.Go(func() { _, errs[i] = b.TryAcquire(t.Context(), reqs[i]) })
		if i < 2 {
			eventually(t, "it is sent", func() bool { return messages.Load() == int64(i+1) })
		}
	}
	<-third // 20 ms later, as the first two do not return
	close(first)
	wg.Wait()
	if n := messages.Load(); n >= attempts {
		t.Errorf("%d attempts were %d messages", attempts, n)
	}
	return reqs, errs
}

// Of attempts whose replies are lost together each one has an unknown outcome, and leaves nothing when it is abandoned.
func TestLostTogether(t *testing.T) {
	px := newProxy(t, sharedServer(t))
	b := openURL(t, "redis://"+px.Addr+"?prefix="+newPrefix())
	reqs, errs := together(t, b, px, drop)
	unknown := 0
	for i, req := range reqs {
		if errs[i] == nil {
			continue
		}
		if unknown++; !isUncertain(errs[i]) {
			t.Errorf("%s: got %v", req.Key, errs[i])
		}
		must(t, b.Abandon(t.Context(), req))
		if in, err := b.Inspect(t.Context(), req.Key); err != nil || in.Holder != nil {
			t.Errorf("%s is held: %+v, %v", req.Key, in, err)
		}
	}
	if unknown < 2 {
		t.Errorf("%d outcomes are unknown, want those of a batch", unknown)
	}
}

// Scripts in a batch that the server does not know are executed.
func TestUnknownTogether(t *testing.T) {
	px := newProxy(t, sharedServer(t))
	b := openURL(t, "redis://"+px.Addr+"?prefix="+newPrefix())
	must(t, b.svc.srv.Client.ScriptFlush(t.Context()).Err())
	_, errs := together(t, b, px, pass)
	for i, err := range errs {
		if err != nil {
			t.Errorf("attempt %d: got %v", i, err)
		}
	}
}
