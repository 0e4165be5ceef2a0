package nats_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/natslock"
)

// A client that may publish to the subjects of the notifications, and do nothing else, cannot make a waiter acquire a
// lock that is held: what it sends wakes the waiter, which reads the lock.
func TestHostilePublisher(t *testing.T) {
	users := "authorization { users: [\n\t{user: admin, password: admin}\n" +
		user("enough", publish, subscribe) + user("hostile", subscribe[1:2], subscribe[1:2]) + "] }\n"
	o := configured(t, users)
	o.Username, o.Password = "admin", "admin"
	s := provision.NewNATS(t, provision.NATS2, o)
	holder := client(t, "nats://admin:admin@"+s.Addr(), lock.WithTTL(time.Minute))
	held, err := holder.Mutex("x").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan struct{}, 1)
	waiter := client(t, "nats://enough:enough@"+s.Addr(), lock.WithTTL(time.Minute), lock.WithObserver(&lock.Observer{
		Waiting: func(context.Context, lock.Event) { waits <- struct{}{} },
	})).Mutex("x")
	granted := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() {
		l, err := waiter.Lock(ctx)
		if err == nil {
			err = l.Unlock(t.Context())
		}
		granted <- err
	}()
	<-waits
	hostile := connect(t, "nats://hostile:hostile@"+s.Addr())
	token, _ := held.Token()
	for _, body := range []string{"", "{}", `{"held":false,"owner":"x"}`, `{"version":1,"held":false,"owner":"x","writes":1,"token":1,"ttl_ms":0}`} {
		for _, version := range []uint64{0, 1, token, token + 1, 1<<64 - 1} {
			m := nats.NewMsg("interlock.locks." + natslock.Key("x"))
			m.Header.Set(jetstream.SequenceHeader, fmt.Sprint(version))
			m.Data = []byte(body)
			if err := errors.Join(hostile.PublishMsg(m), hostile.FlushTimeout(5*time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := holder.Inspect(t.Context(), "x"); err != nil { // a round trip, in which the waiter wakes
				t.Fatal(err)
			}
		}
	}
	select {
	case err := <-granted:
		t.Fatalf("the waiter was granted a lock that is held: %v", err)
	case <-time.After(time.Second):
	}
	if err := held.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-granted; err != nil {
		t.Errorf("the waiter after the release: %v", err)
	}
	if err := hostile.LastError(); err != nil && strings.Contains(err.Error(), "ermission") {
		t.Errorf("the messages were not sent: %v", err)
	}
}
