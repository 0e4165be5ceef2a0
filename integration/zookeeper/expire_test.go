package zookeeper_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/suite"
)

// sessionExpires ends the session of a holder at the server: the lease ends at once, and the
// next one, in another session, has a greater token.
func sessionExpires(t *testing.T, count *counter) {
	b, err := suite.Open(t.Context(), "zk://"+count.addr())
	if err != nil {
		t.Fatal(err)
	}
	c := must[*lock.Client](t)(lock.New(b, lock.WithTTL(4*time.Second)))
	defer c.Close(context.Background())
	l := must[*lock.Lease](t)(c.Mutex("expires").Lock(t.Context()))
	first, _ := l.Token()
	if err := expire(t.Context(), b, 4*time.Second, count); err != nil {
		t.Fatal(err)
	}
	select {
	case <-l.Done():
	case <-time.After(8 * time.Second):
		t.Fatal("the lease goes on after its session has ended")
	}
	if !errors.Is(l.Err(), lock.ErrLost) {
		t.Errorf("got %v", l.Err())
	}
	var again *lock.Lease
	eventually(t, 10*time.Second, "the lock in the next session", func() (err error) {
		again, err = c.Mutex("expires").TryLock(t.Context())
		return err
	})
	if token, _ := again.Token(); token <= first {
		t.Errorf("token %d after %d", token, first)
	}
	if err := again.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}
