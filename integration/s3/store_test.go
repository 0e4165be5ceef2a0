package s3_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/s3lock"
)

// Of many writes with the same condition exactly one succeeds. The driver relies on that and cannot test it when it
// opens a store.
func TestAtomicity(t *testing.T) {
	for _, flavour := range provision.S3Flavours() {
		t.Run(flavour, func(t *testing.T) {
			s := provision.NewS3(t, flavour, provision.Options{})
			a := admin(t, s)
			const writers, rounds = 32, 40
			etag := ""
			for round := range rounds {
				won := make([]error, writers)
				var all sync.WaitGroup
				for i := range won {
					all.Go(func() { won[i] = a.put(t.Context(), "race", fmt.Sprint(round, i), etag) })
				}
				all.Wait()
				winners := 0
				for _, err := range won {
					if err == nil {
						winners++
					} else if !refused(err) {
						t.Fatal(err)
					}
				}
				if winners != 1 {
					t.Fatalf("round %d: %d of %d writes with the condition %q succeeded, want 1", round, winners, writers, etag)
				}
				var err error
				if _, etag, err = a.get(t.Context(), "race"); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// A store that ignores a condition is refused, also by a later opening, and gets one object from all of them.
func TestIgnoredConditions(t *testing.T) {
	s := provision.NewS3(t, provision.VersityGW, provision.Options{})
	for _, header := range []string{"If-Match", "If-None-Match"} {
		p := newProxy(t, s, header)
		for range 3 {
			_, err := suite.Open(t.Context(), through(t, s.URL(), p.URL))
			if !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), header) || !strings.Contains(err.Error(), "conditional writes") {
				t.Errorf("want a store without %s refused, got %v", header, err)
			}
		}
	}
	keys := admin(t, s).keys(t)
	if !slices.Equal(keys, []string{"lock/!probe"}) {
		t.Errorf("want the probe alone, got %q", keys)
	}
}

// What a mistake in the URL is can be read from the error. The server closes the connection beside its reply, so that
// only the status certainly arrives.
func TestMistakes(t *testing.T) {
	s := provision.NewS3(t, provision.VersityGW, provision.Options{Username: "app", Password: provision.Secret})
	user := func(id, secret string) string {
		u, err := url.Parse(s.URL())
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(id, secret)
		return u.String()
	}
	for url, want := range map[string][]string{
		strings.Replace(s.URL(), provision.S3Bucket, "elsewhere", 1): {"404", `"elsewhere"`, s.Addr()},
		with(t, s.URL(), "region", "eu-central-1"):                   {"400", "eu-central-1"},
		user("app", provision.Secret+"-wrong"):                       {"403"},
		user("another", provision.Secret):                            {"404"},
	} {
		_, err := suite.Open(t.Context(), url)
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), provision.Secret) {
				t.Errorf("want an error with %q and without the secret, got %v", w, err)
			}
		}
		if backend.OutcomeUnknown(err) {
			t.Errorf("want an error of a refused request, got %v", err)
		}
	}
}

// The requests that the page of the driver states.
func TestRequests(t *testing.T) {
	s := provision.NewS3(t, provision.VersityGW, provision.Options{})
	p := newProxy(t, s, "")
	requests := func(what string, want int64, do func() error) {
		t.Helper()
		before := p.requests.Load()
		if err := do(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if n := p.requests.Load() - before; n != want {
			t.Errorf("%s: %d requests, want %d", what, n, want)
		}
	}
	var c *lock.Client
	open := func() (err error) {
		c, err = lock.Open(t.Context(), through(t, s.URL(), p.URL), lock.WithTTL(time.Minute))
		if err == nil {
			t.Cleanup(func() { _ = c.Close(context.Background()) })
		}
		return err
	}
	requests("the first opening", 3, open)
	requests("another opening", 2, open)
	var l *lock.Lease
	for _, want := range []int64{2, 1} { // the second time it is not read
		requests("a lock", want, func() (err error) { l, err = c.Mutex("a").Lock(t.Context()); return err })
		requests("a renewal", 1, func() error { return l.Extend(t.Context(), time.Minute) })
		requests("a lock that is held", 1, func() error {
			if _, err := c.Mutex("a").TryLock(t.Context()); !errors.Is(err, lock.ErrLocked) {
				return fmt.Errorf("want ErrLocked, got %w", err)
			}
			return nil
		})
		requests("an unlock", 1, func() error { return l.Unlock(t.Context()) })
	}
}

// A list has all names, also those whose keys are hashes, and none of another prefix.
func TestList(t *testing.T) {
	for _, flavour := range provision.S3Flavours() {
		t.Run(flavour, func(t *testing.T) {
			s := provision.NewS3(t, flavour, provision.Options{})
			names := []string{strings.Repeat("/", 1024), strings.Repeat("x", 201), "free", "a/b", "..", "\xff"}
			for i := range 40 {
				names = append(names, fmt.Sprint("lock ", i))
			}
			for _, prefix := range []string{"one", "one/two"} {
				b, err := suite.Open(t.Context(), strings.Replace(s.URL(), "?", "/"+prefix+"?", 1))
				if err != nil {
					t.Fatal(err)
				}
				defer b.Close(context.Background())
				var want, got []string
				for _, name := range names {
					name = prefix[:min(len(prefix), 1024-len(name))] + name
					g, err := b.TryAcquire(t.Context(), backend.Request{Key: name, Owner: "owner of " + prefix, TTL: time.Minute})
					if err != nil {
						t.Fatal(err)
					}
					if strings.HasSuffix(name, "free") {
						err = g.Release(t.Context())
					} else {
						want = append(want, name)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				err = b.(*s3lock.Backend).List(t.Context(), func(i backend.Info) bool {
					got = append(got, i.Name)
					return i.Holder.Owner == "owner of "+prefix
				})
				slices.Sort(want)
				slices.Sort(got)
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("prefix %s: want %d locks, got %d: %.200q, %v", prefix, len(want), len(got), got, err)
				}
			}
		})
	}
}
