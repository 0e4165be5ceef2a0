package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// needBatch is met by a driver that renews many grants at once, as it is deployed.
var needBatch = need{"backend.BatchRenewer", func(t *T) (Status, string) {
	if _, ok := t.probe.(backend.BatchRenewer); !ok {
		return NotDeclared, "the driver has no BatchRenewer; the core renews one by one"
	}
	b, ttl := t.open(), t.longTTL()
	two := make([]backend.Renewal, 2) // of one a driver makes no batch, perhaps
	for i := range two {
		_, g := t.holdRaw(b, t.key("unsupported"), ttl)
		two[i] = backend.Renewal{Grant: g, TTL: ttl}
	}
	errs := b.(backend.BatchRenewer).RenewBatch(t.ctx, two)
	if len(errs) == 2 && errors.Is(errs[0], errors.ErrUnsupported) {
		return NotDeclared, "renewing many at once is refused here with errors.ErrUnsupported; the core renews one by one"
	}
	return "", ""
}}

func renewedTogether(t *T) {
	const n, short = 50, 10 // grants, and the one of them that is renewed to little
	b, other := t.open(), t.client()
	ttl := max(t.clampTTL(3*time.Second), t.clampTTL(4*t.timeFor(n)))
	start := time.Now()
	keys, grants := make([]string, n), make([]backend.Grant, n)
	all := make([]backend.Renewal, n)
	for i := range n {
		keys[i] = t.key("together")
		_, grants[i] = t.holdRaw(b, keys[i], ttl)
		all[i] = backend.Renewal{Grant: grants[i], TTL: t.longTTL()}
	}
	all[short].TTL = ttl

	lost := map[int]string{0: "released", 7: "released", 23: "succeeded", 49: "released"}
	if breaker, ok := b.(backend.Breaker); ok {
		lost[31] = "broken"
		if _, err := breaker.Break(t.ctx, keys[31], ""); err != nil {
			t.fatalf("Break of a held key: want nil, got %v", err)
		}
	}
	for i, how := range lost {
		if how == "broken" {
			continue
		}
		if err := grants[i].Release(t.ctx); err != nil {
			t.fatalf("Release by the holder: want nil, got %v", err)
		}
	}
	_, successor := t.holdRaw(b, keys[23], ttl) // of the same client, so that they differ in the attempt only
	before := make([]time.Time, n)
	for i, g := range grants {
		before[i] = g.Until()
	}
	sent := time.Now()
	errs := b.(backend.BatchRenewer).RenewBatch(t.ctx, all)
	answered := time.Now()
	untouched := successor.Renew(t.ctx, ttl)
	if took := time.Since(start); took >= ttl/2 {
		t.again("%d grants were taken and renewed in %v, of a TTL of %v", n, took, ttl)
	}
	if len(errs) != n {
		t.fatalf("RenewBatch of %d grants: want as many errors, got %d", n, len(errs))
	}
	for i, err := range errs {
		if errors.Is(err, backend.ErrUncertain) && answered.Sub(sent) > ttl/10 {
			t.again("the grant at %d was not renewed within %v: %v", i, answered.Sub(sent), err)
		}
		switch how := lost[i]; {
		case how != "" && !errors.Is(err, backend.ErrLost):
			t.errorf("RenewBatch, at %d, which was %s: want ErrLost, got %v", i, how, err)
		case how == "" && err != nil:
			t.errorf("RenewBatch, at %d, which is held: want nil, got %v", i, err)
		case how == "" && !before[i].IsZero() && !grants[i].Until().After(before[i]):
			t.errorf("Until of the grant at %d, which was renewed: want it moved, was %v from the renewal, got %v", i, before[i].Sub(sent), grants[i].Until().Sub(sent))
		case how == "" && grants[i].Until().After(answered.Add(all[i].TTL)):
			t.errorf("Until of the grant at %d, renewed to %v: want it counted from before the batch was sent, got %v from its answer", i, all[i].TTL, grants[i].Until().Sub(answered))
		}
	}
	if untouched != nil {
		t.errorf("Renew by the successor of a lost grant: want nil, got %v", untouched)
	}
	if t.failed() {
		return
	}
	t.idleFor(ttl + ttl/4)
	for i, key := range keys {
		if lost[i] == "" && i != short {
			t.refused(other.Mutex(key), fmt.Sprintf("the key at %d, renewed together with others, a TTL later", i))
		}
	}
	if t.caps.Loss == backend.LossTTL {
		t.free(other, keys[23], "a key whose holder does not renew, and whose former one was in a batch", ttl+t.slack())
		t.free(other, keys[short], "a key that was renewed to less than others in the batch", ttl+t.slack())
	}
	for i, g := range grants {
		if lost[i] == "" && i != short {
			if err := g.Release(t.ctx); err != nil {
				t.errorf("Release at %d after a batch: want nil, got %v", i, err)
			}
		}
	}
}

// needBatchAbandoner is met by a driver that abandons many attempts at once, as it is deployed.
var needBatchAbandoner = need{"backend.BatchAbandoner", func(t *T) (Status, string) {
	if _, ok := t.probe.(backend.BatchAbandoner); !ok {
		return NotDeclared, "the driver has no BatchAbandoner; the core abandons one by one"
	}
	two := []backend.Request{request(t.key("unsupported"), t.longTTL()), request(t.key("unsupported"), t.longTTL())}
	errs := t.open().(backend.BatchAbandoner).AbandonBatch(t.ctx, two)
	if len(errs) == 2 && errors.Is(errs[0], errors.ErrUnsupported) {
		return NotDeclared, "abandoning many at once is refused here with errors.ErrUnsupported; the core abandons one by one"
	}
	return "", ""
}}

// abandonedTogether abandons attempts that hold their keys, and others between them: attempts
// that were released, that have a successor, and that waited for a key.
func abandonedTogether(t *T) {
	const n = 50
	b, other := t.open(), t.client()
	all := make([]backend.Request, n)
	what := make([]string, n) // "" for an attempt that holds its key
	successors := map[int]backend.Grant{}
	for i := range n {
		req, g := t.holdRaw(b, t.key("together"), t.longTTL())
		if all[i] = req; i%7 > 1 {
			continue
		}
		what[i] = "released"
		if err := g.Release(t.ctx); err != nil {
			t.fatalf("Release by the holder: want nil, got %v", err)
		}
		if i%7 == 1 {
			what[i] = "succeeded"
			_, successors[i] = t.holdRaw(b, req.Key, t.longTTL())
		}
	}
	var held *lock.Lease // while two attempts of the batch wait for it
	if w, ok := b.(backend.Waiter); ok {
		key := t.key("waited-for")
		held = t.mustLock(other.Mutex(key), "a free key")
		for range 2 {
			all, what = append(all, t.gaveUp(w, key)), append(what, "waited for a key")
		}
	}

	ended, cancel := context.WithCancel(t.ctx)
	cancel()
	errs := b.(backend.BatchAbandoner).AbandonBatch(ended, all)
	for i, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			t.errorf("AbandonBatch with a context that had ended, at %d: want its error or nil, got %v", i, err)
		}
	}
	if errs = append(errs[:0:0], b.(backend.BatchAbandoner).AbandonBatch(t.ctx, all)...); len(errs) != len(all) {
		t.fatalf("AbandonBatch of %d attempts: want as many errors, got %d", len(all), len(errs))
	}
	for i, err := range errs {
		if err != nil {
			t.errorf("AbandonBatch, at %d, which %s: want nil, got %v", i, cmp.Or(what[i], "held"), err)
		}
	}
	for i, req := range all[:n] {
		if s := successors[i]; s == nil {
			t.free(other, req.Key, fmt.Sprintf("the key at %d, abandoned together with others", i), t.slack())
		} else if err := s.Renew(t.ctx, t.longTTL()); err != nil {
			t.errorf("Renew by the successor of the attempt at %d: want nil, got %v", i, err)
		}
	}
	if held != nil {
		t.mustUnlock(held, "the holder")
		t.free(t.client(), held.Name(), "a key whose waiters were abandoned together", t.slack())
	}
}

// gaveUp returns an attempt that waited for key until its context ended.
func (t *T) gaveUp(w backend.Waiter, key string) backend.Request {
	req := request(key, t.longTTL())
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	_, errs := t.acquireRaw(ctx, w, req)
	cancel()
	if err := <-errs; err == nil {
		t.fatalf("Acquire of a held key whose context ended: want an error, it was granted")
	}
	return req
}
