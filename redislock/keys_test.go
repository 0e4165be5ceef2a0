package redislock

import (
	"fmt"
	"strings"
	"testing"

	"github.com/interlock-go/lock/backend"
)

// slot is that of a key in a cluster, computed from the specification.
func slot(key string) uint16 {
	if i := strings.IndexByte(key, '{'); i >= 0 {
		if j := strings.IndexByte(key[i+1:], '}'); j > 0 {
			key = key[i+1 : i+1+j]
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}

func checkKey(t *testing.T, prefix, name string) {
	t.Helper()
	k := keysOf(lockKey(prefix, name))
	if strings.ContainsAny(k.lock, "{}") {
		t.Errorf("%q: key %q has a brace", name, k.lock)
	}
	for _, s := range []string{k.queue, k.fence, k.tombstone("00"), k.channel("s0")} {
		if slot(s) != slot(k.lock) {
			t.Errorf("%q: %q and %q are not of one slot", name, s, k.lock)
		}
		if n, ok := lockName(prefix, s); ok {
			t.Errorf("%q is a key of the lock %q too", s, n)
		}
	}
	if got, ok := lockName(prefix, k.lock); !ok || got != name { // so it is injective
		t.Errorf("%q: key %q reads back as %q, %v", name, k.lock, got, ok)
	}
}

func TestKeys(t *testing.T) {
	for name, want := range map[string]string{
		"orders/42": "lock:orders/42", "a:b": "lock:a:b", "100%": "lock:100%", "%": "lock:%%25",
		"{a}": "lock:%%7Ba%7D", "%7Ba%7D": "lock:%%257Ba%257D", "a{%": "lock:%a%7B%25",
	} {
		if got := lockKey("lock", name); got != want {
			t.Errorf("%q: key %q, want %q", name, got, want)
		}
	}
	seen := map[string]string{}
	for a := range 256 {
		for b := range 256 {
			name := string([]byte{byte(a), byte(b)})
			checkKey(t, "", name)
			k := lockKey("p", name)
			if other, ok := seen[k]; ok {
				t.Fatalf("%q and %q share %q", name, other, k)
			}
			seen[k] = name
		}
	}
	for _, key := range []string{"lock", "lock:", "other:a", "lock:%", "lock:%a", "lock:a}", "lock:%zz{"} {
		if name, ok := lockName("lock", key); ok {
			t.Errorf("%q reads as %q", key, name)
		}
	}
	for _, p := range []string{"a b", "a:b", "{", "}", "\x00", strings.Repeat("x", 201)} {
		if checkPrefix(p) == nil {
			t.Errorf("prefix %q", p)
		}
	}
}

func FuzzKeys(f *testing.F) {
	f.Add("lock", "orders/42")
	f.Add("", "{a}:q")
	f.Add("p", "%7B")
	f.Add("", "%%")
	f.Fuzz(func(t *testing.T, prefix, name string) {
		if name == "" || len(name) > backend.MaxName || checkPrefix(prefix) != nil {
			t.Skip()
		}
		checkKey(t, prefix, name)
	})
}

func FuzzGlob(f *testing.F) {
	f.Add("a*b")
	f.Add(`[^a-z]\?`)
	f.Fuzz(func(t *testing.T, s string) {
		out := globEscape(s)
		var back strings.Builder
		for i := 0; i < len(out); i++ {
			if out[i] == '\\' {
				i++
			} else if strings.IndexByte(`*?[]^-`, out[i]) >= 0 {
				t.Fatalf("%q: unescaped %q", s, out)
			}
			back.WriteByte(out[i])
		}
		if back.String() != s {
			t.Fatalf("%q became %q", s, out)
		}
	})
}

func TestParty(t *testing.T) {
	b := &Backend{address: "p0123456789abcdef"}
	r := request("k")
	for _, meta := range []string{"", "x", "two words", "ünïcode 100%"} {
		r.Metadata = meta
		owner, rest, ok := parseParty(b.member(r))
		if !ok || owner != r.Owner || afterSpace(rest) != meta {
			t.Errorf("%q: %q %q %v", meta, owner, rest, ok)
		}
	}
	for _, v := range []string{"", "x", strings.Repeat("a", 32), r.Owner + "@p0123456789abcde", r.Owner + "@p0123456789abcdefg", r.Owner + "@x0123456789abcdef", strings.Repeat("g", 32) + "@p0123456789abcdef"} {
		if _, _, ok := parseParty(v); ok {
			t.Errorf("%q is not ours", v)
		}
	}
}

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
	foreign := lockKey(b.opt.prefix, "foreign")
	must(t, b.rdb.Set(t.Context(), foreign, "somebody", 0).Err())
	must(t, b.rdb.LPush(t.Context(), lockKey(b.opt.prefix, "list"), "x").Err())
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
	must(t, b.rdb.Del(t.Context(), foreign, lockKey(b.opt.prefix, "list")).Err())

	// without a prefix the name is the key, and only our own are listed
	bare := openURL(t, "redis://"+private(t)+"?prefix=")
	must(t, bare.rdb.Set(t.Context(), "data", "x", 0).Err())
	g = take(t, bare, request("job"))
	if bare.rdb.Exists(t.Context(), "job").Val() != 1 {
		t.Error("the name is not the key")
	}
	n = 0
	must(t, bare.List(t.Context(), func(i backend.Info) bool { n++; return i.Name == "job" }))
	if n != 1 {
		t.Errorf("listed %d", n)
	}
	must(t, g.Release(t.Context()))
}
