package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
)

// occupied is a lock that is held and waited for, and of which one key is replaced by data of another program.
type occupied struct {
	b, b2   *Backend
	request backend.Request // of the holder
	g       backend.Grant
	waiter  <-chan acquired
	key     string
}

// siblings are the keys of a lock beside it, by their place in keysOf.
var siblings = map[string]int{"queue": 1, "holders": 3, "ends": 4}

func occupy(t *testing.T, sibling string, share backend.Share) *occupied {
	t.Helper()
	p := newPrefix()
	o := &occupied{b: newBackend(t, p), b2: newBackend(t, p), request: shareRequest("k", share)}
	o.g = take(t, o.b, o.request)
	r := request("k")
	r.TTL = time.Second
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	o.waiter = enqueue(ctx, t, o.b2, r)
	o.key = o.b.svc.keysOf("k", "")[siblings[sibling]]
	c := client(t, sharedServer(t))
	must(t, c.Del(t.Context(), o.key).Err())
	must(t, c.RPush(t.Context(), o.key, "of", "another", "program").Err())
	return o
}

// untouched fails if the data of the other program have changed.
func (o *occupied) untouched(t *testing.T) {
	t.Helper()
	c := client(t, sharedServer(t))
	got, err := c.LRange(t.Context(), o.key, 0, -1).Result()
	if err != nil || strings.Join(got, " ") != "of another program" {
		t.Errorf("the data of another program are %q, %v", got, err)
	}
	if ttl := c.TTL(t.Context(), o.key).Val(); ttl != -1 {
		t.Errorf("the data of another program end in %v", ttl)
	}
}

// A holder beside a key of another type renews, releases and is broken, and the waiter that is still in the queue gets the
// lock. Shares are lost with their records; without them only Break ends the lock before the leases end. Whatever happens,
// the data of the other program stay.
func TestHolderBesideForeignData(t *testing.T) {
	ops := map[string]func(*testing.T, *occupied) error{
		"renew":   func(t *testing.T, o *occupied) error { return o.g.Renew(t.Context(), time.Minute) },
		"release": func(t *testing.T, o *occupied) error { return o.g.Release(t.Context()) },
		"abandon": func(t *testing.T, o *occupied) error { return o.b.Abandon(t.Context(), o.request) },
		"inspect": func(t *testing.T, o *occupied) error { _, err := o.b.Inspect(t.Context(), "k"); return err },
		"pass":    func(t *testing.T, o *occupied) error { _, err := o.b.svc.Pass(t.Context(), "k", false); return err },
		"break":   func(t *testing.T, o *occupied) error { _, err := o.b2.Break(t.Context(), "k", ""); return err },
	}
	for sibling := range siblings {
		for _, share := range []backend.Share{{}, backend.Reader, permits(2, 3)} {
			for name, op := range ops {
				t.Run(fmt.Sprint(sibling, "/", share.Mode(), "/", name), func(t *testing.T) {
					o := occupy(t, sibling, share)
					err := op(t, o)
					lost := !share.Exclusive() && sibling != "queue" && (name == "renew" || name == "release")
					if lost != errors.Is(err, backend.ErrLost) || !lost && err != nil {
						t.Errorf("got %v; lost: %v", err, lost)
					}
					o.untouched(t)
					ends := name == "release" || name == "abandon" || name == "break"
					if !ends || sibling == "queue" || sibling == "holders" && !share.Exclusive() && name != "break" {
						return
					}
					must(t, getWithin(t, 2*time.Second, o.waiter).Release(t.Context()))
					o.untouched(t)
					if n := client(t, sharedServer(t)).Exists(t.Context(), o.b.svc.keysOf("k", "")[0]).Val(); n != 0 {
						t.Error("the lock remains")
					}
				})
			}
		}
	}
}

// An attempt that needs a key of another type gets an error that names it, at once; one that does not need it is served.
func TestAttemptBesideForeignData(t *testing.T) {
	for sibling := range siblings {
		for _, held := range []bool{false, true} {
			for _, share := range []backend.Share{{}, backend.Reader, permits(2, 3)} {
				t.Run(fmt.Sprint(sibling, "/", held, "/", share.Mode()), func(t *testing.T) {
					o := occupy(t, sibling, backend.Share{})
					if !held {
						must(t, o.g.Release(t.Context()))
						if sibling != "queue" {
							must(t, getWithin(t, 2*time.Second, o.waiter).Release(t.Context()))
						}
					}
					needed := !share.Exclusive() && sibling != "queue" || held && sibling == "queue"
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					if !needed && held {
						_, err := o.b.TryAcquire(ctx, shareRequest("k", share))
						if !errors.Is(err, backend.ErrLocked) {
							t.Errorf("beside a holder: %v", err)
						}
						o.untouched(t)
						return
					}
					g, err := o.b.Acquire(ctx, shareRequest("k", share))
					switch {
					case !needed && err == nil:
						must(t, g.Release(t.Context()))
					case !needed, !errors.Is(err, backend.ErrInvalid), backend.OutcomeUnknown(err),
						!strings.Contains(err.Error(), "list"), !strings.Contains(err.Error(), o.key):
						t.Errorf("needed: %v, got %v, %v", needed, g, err)
					}
					o.untouched(t)
				})
			}
		}
	}
}

// A waiter whose place another program has replaced gets the error when it asks.
func TestWaiterBesideForeignData(t *testing.T) {
	o := occupy(t, "queue", backend.Share{})
	o.b2.svc.subs.pollNow(o.b2.svc.proc.Channel())
	select {
	case a := <-o.waiter:
		if !errors.Is(a.Err, backend.ErrInvalid) || !isUncertain(a.Err) {
			t.Errorf("got %v, %v", a.Grant, a.Err)
		}
	case <-time.After(5 * time.Second):
		t.Error("it waits on")
	}
	o.untouched(t)
	must(t, o.g.Release(t.Context()))
}

// An exclusive grant becomes a share only where the records of shares can be stored.
func TestDowngradeBesideForeignData(t *testing.T) {
	for _, sibling := range []string{"holders", "ends"} {
		o := occupy(t, sibling, backend.Share{})
		err := o.g.(backend.Downgrader).Downgrade(t.Context())
		if !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), o.key) {
			t.Errorf("%s: %v", sibling, err)
		}
		o.untouched(t)
		must(t, o.g.Release(t.Context()))
		must(t, getWithin(t, 2*time.Second, o.waiter).Release(t.Context()))
	}
}

// Readers that wait beside a key in which their grants cannot be stored get an error, and do not delay other attempts.
func TestReadersWaitBesideForeignData(t *testing.T) {
	p := newPrefix()
	b, b2, c := newBackend(t, p), newBackend(t, p), client(t, sharedServer(t))
	g := take(t, b, request("k"))
	ch, behind := enqueue(t.Context(), t, b2, shareRequest("k", backend.Reader)), enqueue(t.Context(), t, b, request("k"))
	must(t, c.Del(t.Context(), b.svc.keysOf("k", "")[3]).Err())
	must(t, c.Set(t.Context(), b.svc.keysOf("k", "")[3], "x", 0).Err())
	must(t, g.Release(t.Context()))
	select {
	case a := <-ch:
		if !errors.Is(a.Err, backend.ErrInvalid) {
			t.Errorf("got %v, %v", a.Grant, a.Err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits on")
	}
	must(t, getWithin(t, 20*time.Second, behind).Release(t.Context()))
	if v := c.Get(t.Context(), b.svc.keysOf("k", "")[3]).Val(); v != "x" {
		t.Errorf("the data of another program are %q", v)
	}
}

// An attempt that is refused beside foreign data stores what it has found: that the lease of a permit has ended.
func TestPermitEndsBesideForeignData(t *testing.T) {
	b, c := newBackend(t, newPrefix()), client(t, sharedServer(t))
	short := shareRequest("k", permits(1, 3))
	short.TTL = 100 * time.Millisecond
	ended, g := take(t, b, short), take(t, b, shareRequest("k", permits(1, 3)))
	must(t, c.Set(t.Context(), b.svc.keysOf("k", "")[1], "x", 0).Err())
	time.Sleep(time.Until(ended.Until()) + 50*time.Millisecond) // its lease ends at the server
	if _, err := b.Acquire(t.Context(), request("k")); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("got %v", err)
	}
	if v := c.Get(t.Context(), b.svc.keysOf("k", "")[0]).Val(); v != "@shared p01" {
		t.Errorf("value %q, want that of the second permit", v)
	}
	must(t, g.Release(t.Context()))
}
