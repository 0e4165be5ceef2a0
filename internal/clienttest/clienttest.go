// Package clienttest has what the tests of package lock and of the packages on top of it share.
package clienttest

import (
	"context"
	"errors"
	"testing"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// NewClient returns a client that is closed with the test. It logs nothing unless opts has
// a logger.
func NewClient(t *testing.T, b backend.Backend, opts ...lock.Option) *lock.Client {
	t.Helper()
	c, err := lock.New(b, append([]lock.Option{lock.WithLogger(nil)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// MustLock returns a lease of m, which must be free.
func MustLock(t *testing.T, m lock.Mutex) *lock.Lease {
	t.Helper()
	l, err := m.TryLock(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// WantErr fails the test unless err matches each of targets.
func WantErr(t *testing.T, what string, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Fatalf("%s: got error %v, want one that matches %v", what, err, target)
		}
	}
}
