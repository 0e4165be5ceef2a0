package nats_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

// What a user needs, as docs/backends/nats.md lists it.
var (
	publish   = []string{"$JS.API.STREAM.INFO.KV_locks", "$JS.API.STREAM.MSG.GET.KV_locks", "$KV.locks.>"}
	subscribe = []string{"_INBOX.>", "interlock.locks.>", "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.KV_locks"}
	toList    = []string{"$JS.API.CONSUMER.CREATE.KV_locks.>", "$JS.API.CONSUMER.MSG.NEXT.KV_locks.>", "$JS.API.CONSUMER.DELETE.KV_locks.>"}
)

func user(name string, publish, subscribe []string) string {
	return fmt.Sprintf("\t{user: %s, password: %s, permissions: {publish: [%s], subscribe: [%s]}}\n", name, name,
		`"`+strings.Join(publish, `", "`)+`"`, `"`+strings.Join(subscribe, `", "`)+`"`)
}

// Users with the permissions of the documentation can do everything. A user without one of them gets an error that
// names it.
func TestPermissions(t *testing.T) {
	users := "authorization { users: [\n\t{user: admin, password: admin}\n" + user("enough", publish, subscribe) + user("lists", append(toList, publish...), subscribe)
	denied := map[string]string{} // by user
	for i, p := range publish {
		name := fmt.Sprint("publish", i)
		denied[name], users = `Publish to "`+p, users+user(name, without(publish, p), subscribe)
	}
	for i, s := range subscribe[1:] { // without replies there is not even an error
		name := fmt.Sprint("subscribe", i)
		denied[name], users = `Subscription to "`+s, users+user(name, publish, without(subscribe, s))
	}
	o := configured(t, users+"] }\n")
	o.Username, o.Password = "admin", "admin"
	s := provision.NewNATS(t, provision.NATS2, o)
	as := func(name string) string { return "nats://" + name + ":" + name + "@" + s.Addr() + "?timeout=500ms" }
	holder := client(t, as("admin"))
	if err := everything(t, holder, as("enough")); err != nil {
		t.Errorf("with the permissions of the documentation: %v", err)
	}
	b, err := suite.Open(t.Context(), as("lists"))
	if err != nil {
		t.Fatal(err)
	}
	lists, err := lock.New(b)
	if err != nil {
		t.Fatal(err)
	}
	defer lists.Close(context.Background())
	held, err := holder.Mutex("listed").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for info, err := range lists.List(t.Context()) {
		if err != nil {
			t.Errorf("list: %v", err)
			break
		}
		found = found || info.Name == "listed"
	}
	if !found {
		t.Error("the list does not have the lock")
	}
	if err := held.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	for name, missing := range denied {
		missing = strings.TrimSuffix(missing, ">")
		if err := everything(t, holder, as(name)); err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("%s: want an error with %q, got %v", name, missing, err)
		}
	}
}

func without(all []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == one })
}

// everything locks, waits, inspects and breaks as a user.
func everything(t *testing.T, holder *lock.Client, url string) error {
	t.Helper()
	c, err := lock.Open(t.Context(), url, lock.WithTTL(time.Second), lock.WithObserver(&lock.Observer{}))
	if err != nil {
		return err
	}
	defer c.Close(context.Background())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	l, err := c.Mutex("a").TryLock(ctx)
	if err != nil {
		return err
	}
	if err := l.Unlock(ctx); err != nil {
		return err
	}
	held, err := holder.Mutex("a").Lock(ctx)
	if err != nil {
		return err
	}
	waited := make(chan error, 1)
	go func() {
		l, err := c.Mutex("a").Lock(ctx)
		if err == nil {
			err = l.Unlock(ctx)
		}
		waited <- err
	}()
	select {
	case err := <-waited: // it cannot subscribe
		return fmt.Errorf("%w, %w", err, held.Unlock(ctx))
	case <-time.After(5 * time.Second):
	}
	if info, err := c.Inspect(ctx, "a"); err != nil || info.Holder == nil {
		return fmt.Errorf("inspect: %v, %w", info, err)
	}
	if err := held.Unlock(ctx); err != nil {
		return err
	}
	return <-waited
}
