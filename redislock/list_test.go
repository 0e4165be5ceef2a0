package redislock

import (
	"fmt"
	"strings"
	"testing"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

func TestNamesAndList(t *testing.T) {
	// a prefix that is a pattern must match itself only
	p := newPrefix()
	b, other := newBackend(t, p+"[a]*%3F"), newBackend(t, p+"a")
	names := []string{"a", "A", ".", "..", "/", "\\", " ", "a b", "\x00\xff", "ü", "{", "}", "{a}", "%", "%41", "*", strings.Repeat("x", 1024), strings.Repeat("{", 1024), "a:q"}
	for i := range 700 {
		names = append(names, fmt.Sprint("n", i))
	}
	held := map[string]backend.Grant{}
	for _, n := range names {
		held[n] = take(t, b, request(n))
	}
	foreign := protocol.LockKey(b.svc.opt.prefix, "foreign")
	must(t, b.svc.srv.Client.Set(t.Context(), foreign, "another client", 0).Err())
	must(t, b.svc.srv.Client.LPush(t.Context(), protocol.LockKey(b.svc.opt.prefix, "list"), "x").Err())
	g := take(t, other, request("a"))
	seen := map[string]backend.Info{}
	must(t, b.List(t.Context(), func(i backend.Info) bool {
		if _, dup := seen[i.Name]; dup {
			t.Errorf("%q twice", i.Name)
		}
		seen[i.Name] = i
		return true
	}))
	if !seen["foreign"].Holder.Foreign {
		t.Errorf("%+v", seen["foreign"])
	}
	delete(seen, "foreign")
	if len(seen) != len(names) {
		t.Errorf("listed %d of %d", len(seen), len(names))
	}
	for n, g := range held {
		if h := seen[n].Holder; h == nil || h.Token != g.Token() || h.Left <= 0 || h.Metadata != request(n).Metadata {
			t.Errorf("%q: %+v", n, h)
		}
		must(t, g.Release(t.Context()))
	}
	n := 0
	must(t, b.List(t.Context(), func(backend.Info) bool { n++; return false }))
	if n != 1 {
		t.Errorf("%d after the first was enough", n)
	}
	must(t, g.Release(t.Context()))
	must(t, b.svc.srv.Client.Del(t.Context(), foreign, protocol.LockKey(b.svc.opt.prefix, "list")).Err())

	// without a prefix the name is the key, and only our own are listed
	bare := openURL(t, "redis://"+private(t)+"?prefix=")
	must(t, bare.svc.srv.Client.Set(t.Context(), "data", "x", 0).Err())
	g = take(t, bare, request("job"))
	if bare.svc.srv.Client.Exists(t.Context(), "job").Val() != 1 {
		t.Error("the name is not the key")
	}
	n = 0
	must(t, bare.List(t.Context(), func(i backend.Info) bool { n++; return i.Name == "job" }))
	if n != 1 {
		t.Errorf("listed %d", n)
	}
	must(t, g.Release(t.Context()))
}
