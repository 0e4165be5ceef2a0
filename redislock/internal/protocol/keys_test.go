package protocol

import (
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
	k := Process{Prefix: prefix, Address: "s0"}.Keys(name)
	if strings.ContainsAny(k.Lock, "{}") {
		t.Errorf("%q: key %q has a brace", name, k.Lock)
	}
	for _, s := range []string{k.Queue, k.Fence, k.Tombstone("00"), k.Channel("s0")} {
		if slot(s) != slot(k.Lock) {
			t.Errorf("%q: %q and %q are not of one slot", name, s, k.Lock)
		}
		if n, ok := LockName(prefix, s); ok {
			t.Errorf("%q is a key of the lock %q too", s, n)
		}
	}
	if got, ok := LockName(prefix, k.Lock); !ok || got != name { // so it is injective
		t.Errorf("%q: key %q reads back as %q, %v", name, k.Lock, got, ok)
	}
}

func TestKeys(t *testing.T) {
	for name, want := range map[string]string{
		"orders/42": "lock:orders/42", "a:b": "lock:a:b", "100%": "lock:100%", "%": "lock:%%25",
		"{a}": "lock:%%7Ba%7D", "%7Ba%7D": "lock:%%257Ba%257D", "a{%": "lock:%a%7B%25",
	} {
		if got := LockKey("lock", name); got != want {
			t.Errorf("%q: key %q, want %q", name, got, want)
		}
	}
	seen := map[string]string{}
	for a := range 256 {
		for b := range 256 {
			name := string([]byte{byte(a), byte(b)})
			checkKey(t, "", name)
			k := LockKey("p", name)
			if other, ok := seen[k]; ok {
				t.Fatalf("%q and %q share %q", name, other, k)
			}
			seen[k] = name
		}
	}
	for _, key := range []string{"lock", "lock:", "other:a", "lock:%", "lock:%a", "lock:a}", "lock:%zz{"} {
		if name, ok := LockName("lock", key); ok {
			t.Errorf("%q reads as %q", key, name)
		}
	}
	for _, p := range []string{"a b", "a:b", "{", "}", "\x00", strings.Repeat("x", 201)} {
		if CheckPrefix(p) == nil {
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
		if name == "" || len(name) > backend.MaxName || CheckPrefix(prefix) != nil {
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

func TestOwnerAddress(t *testing.T) {
	p := Process{Address: "p0123456789abcdef"}
	id := strings.Repeat("0a", 16)
	for _, meta := range []string{"", "x", "two words", "ünïcode 100%"} {
		owner, rest, ok := ParseOwner(p.OwnerAddress(id) + " " + meta)
		if !ok || owner != id || rest != meta {
			t.Errorf("%q: %q %q %v", meta, owner, rest, ok)
		}
	}
	for _, v := range []string{"", "x", strings.Repeat("a", 32), id + "@p0123456789abcde", id + "@p0123456789abcdefg", id + "@x0123456789abcdef", strings.Repeat("g", 32) + "@p0123456789abcdef"} {
		if _, _, ok := ParseOwner(v); ok {
			t.Errorf("%q is not ours", v)
		}
	}
}
