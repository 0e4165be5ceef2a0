package etcdlock

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

func openURL(t *testing.T, rawURL string) (backend.Backend, error) {
	t.Helper()
	u, err := backend.ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	b, err := backend.Open(t.Context(), u)
	if err == nil {
		t.Cleanup(func() { _ = b.Close(context.Background()) })
	}
	return b, err
}

func TestURLErrors(t *testing.T) {
	for url, want := range map[string]string{
		"etcd:///p":                             "URL hosts",
		"etcd://h/?dial_timeout=0":              "dial_timeout",
		"etcd://h?prefix=x":                     "unknown",
		"etcd://h?tls_ca=x":                     "need etcds://",
		"etcds://h?tls=false":                   "parameter tls",
		"etcds://h?tls_ca=/nonexistent":         "tls_ca",
		"etcds://h?tls_cert=/nonexistent":       "need each other",
		"etcd://user@h":                         "a user needs a password",
		"etcd://h/" + strings.Repeat("x", 201):  "prefix",
		"etcd://u:secret@h?dial_timeout=secret": "dial_timeout",
	} {
		_, err := openURL(t, url)
		if !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want ErrInvalid with %q, got %v", url, want, err)
		}
		if err != nil && strings.Contains(err.Error(), "u:secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestAbsentServer(t *testing.T) {
	begun := time.Now()
	for _, url := range []string{"etcd://127.0.0.1:1?dial_timeout=500ms", "etcd://u:secret@127.0.0.1:1?dial_timeout=500ms"} {
		_, err := openURL(t, url)
		if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
	if d := time.Since(begun); d > soon {
		t.Errorf("it took %v", d)
	}
}

// TestOpenEndsWithItsContext opens while no server answers.
func TestOpenEndsWithItsContext(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, user := range []string{"", "u:secret@"} {
		u, err := backend.ParseURL("etcd://" + user + silent.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		deadline, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		canceled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, cancel)
		for _, ctx := range []context.Context{deadline, canceled} {
			begun := time.Now()
			_, err := backend.Open(ctx, u)
			if d := time.Since(begun); d > 2*time.Second || !errors.Is(err, ctx.Err()) || strings.Count(err.Error(), "context") != 1 {
				t.Errorf("user %q: %v after %v", user, err, d)
			}
		}
		if _, err := openURL(t, "etcd://"+user+silent.Addr().String()+"?dial_timeout=200ms"); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("user %q: without a deadline of the caller: %v", user, err)
		}
	}
}

func TestNewKeepsTheCallersClient(t *testing.T) {
	c := client(t, server(t))
	if _, err := New(nil); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("New(nil): %v", err)
	}
	if _, err := New(c, WithPrefix("")); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("WithPrefix of nothing: %v", err)
	}
	b, err := New(c, WithPrefix(t.Name()))
	if err != nil {
		t.Fatal(err)
	}
	try(t, b, request("k", 5*time.Second))
	leases := b.Leases()
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.TryAcquire(t.Context(), request("k", 5*time.Second)); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if len(leases) != 1 {
		t.Fatalf("leases: %v", leases)
	}
	if r, err := c.TimeToLive(t.Context(), leases[0]); err != nil || r.TTL != -1 {
		t.Errorf("the lease after Close: %v, %v", r, err)
	}
}

func TestNamespace(t *testing.T) {
	addr := server(t)
	b, err := openURL(t, "etcd://"+addr+"/p%2Fq?namespace=/my/app/")
	if err != nil {
		t.Fatal(err)
	}
	g := try(t, b.(*Backend), request("a/b", 5*time.Second))
	r, err := client(t, addr).Get(t.Context(), "/my/app/p%2Fq/a%2Fb/", clientv3.WithPrefix())
	if err != nil || len(r.Kvs) != 1 {
		t.Fatalf("%v, %v", r, err)
	}
	i, err := b.(backend.Inspector).Inspect(t.Context(), "a/b")
	if err != nil || i.Holder == nil || i.Holder.Token != g.Token() || i.Holder.Left <= 0 {
		t.Errorf("Inspect: %+v, %v", i, err)
	}
	release(t, g)
	useShares(t, b.(*Backend))
}

// useShares sends each kind of request that concerns shares.
func useShares(t *testing.T, b *Backend) {
	t.Helper()
	w := try(t, b, request("shares", 5*time.Second))
	next := waiting(t, t.Context(), b, requestShare("shares", 1, 3))
	if err := w.Downgrade(t.Context()); err != nil {
		t.Errorf("Downgrade with permits that wait: %v", err)
	}
	release(t, w)
	first, other := granted(t, next), try(t, b, requestShare("shares", 2, 3))
	if i := inspect(t, b, "shares"); len(i.Others) != 1 || !slices.Equal(other.Slots(), []int{1, 2}) {
		t.Errorf("permits: %+v", i)
	}
	if _, err := b.TryAcquire(t.Context(), reader("shares")); !errors.Is(err, backend.ErrLocked) {
		t.Errorf("a reader beside permits: %v", err)
	}
	release(t, first)
	if _, err := b.Break(t.Context(), "shares", ""); err != nil {
		t.Error(err)
	}
	w = try(t, b, request("shares", 5*time.Second))
	if err := w.Downgrade(t.Context()); err != nil {
		t.Error(err)
	}
	r := try(t, b, reader("shares"))
	if err := r.Renew(t.Context(), 5*time.Second); err != nil {
		t.Error(err)
	}
	release(t, w)
	release(t, r)
}

// TestAuthentication is with a role as the documentation gives it.
func TestAuthentication(t *testing.T) {
	addr := privately(t)
	c := client(t, addr)
	ctx := t.Context()
	for _, err := range []error{
		second(c.UserAdd(ctx, "root", "root-secret")), second(c.UserGrantRole(ctx, "root", "root")),
		second(c.UserAdd(ctx, "app", "app-secret")), second(c.RoleAdd(ctx, "locks")),
		second(c.RoleGrantPermission(ctx, "locks", "lock/", clientv3.GetPrefixRangeEnd("lock/"), clientv3.PermissionType(clientv3.PermReadWrite))),
		second(c.UserGrantRole(ctx, "app", "locks")), second(c.AuthEnable(ctx)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	b, err := openURL(t, "etcd://app:app-secret@"+addr)
	if err != nil {
		t.Fatal(err)
	}
	g := try(t, b.(*Backend), request("k", 2*time.Second))
	next := waiting(t, ctx, b.(*Backend), request("k", 2*time.Second))
	if err := g.Renew(ctx, 2*time.Second); err != nil {
		t.Error(err)
	}
	release(t, g)
	granted(t, next)
	useShares(t, b.(*Backend))
	if _, err := b.(backend.Inspector).Inspect(ctx, "k"); err != nil {
		t.Error(err)
	}
	if err := b.(backend.Lister).List(ctx, func(backend.Info) bool { return true }); err != nil {
		t.Error(err)
	}
	if err := b.(backend.Pinger).Ping(ctx); err != nil {
		t.Error(err)
	}
	if _, err := b.(backend.Breaker).Break(ctx, "k", ""); err != nil {
		t.Error(err)
	}
	for url, want := range map[string]string{
		"etcd://app:wrong-secret@" + addr:         "authentication failed",
		"etcd://app:app-secret@" + addr + "/else": "permission denied for the keys under \"else/\"",
		"etcd://" + addr:                          "user name is empty",
	} {
		if _, err := openURL(t, url); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: want %q, got %v", url, want, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestErrorNamesAnAddressOnce(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = openURL(t, "etcd://"+closed.Addr().String()+"?dial_timeout=1s")
	if err == nil || strings.Count(err.Error(), closed.Addr().String()) != 1 {
		t.Errorf("a port that is closed: want %v once, got %v", closed.Addr(), err)
	}
}
