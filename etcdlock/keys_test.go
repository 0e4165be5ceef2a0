package etcdlock

import (
	"strings"
	"testing"

	"github.com/interlock-go/lock/backend"
)

func TestFoldersAreApart(t *testing.T) {
	parts := []string{"a", "a/", "/a", "a/b", "a%2Fb", "%", "%x", "%X", "%25", "b", "a b", "\x00", "\x7f", "é", "\xff", ".", "..", "-", strings.Repeat("/", 1024)}
	seen := map[string]string{}
	for _, p := range parts {
		for _, n := range parts {
			f := Folder(p, n)
			if other, dup := seen[f]; dup {
				t.Errorf("%q and %q are both %q", other, p+"|"+n, f)
			}
			seen[f] = p + "|" + n
			if name, rest, ok := splitKey(escape(p)+"/", f+"x"); !ok || name != n || rest != "x" {
				t.Errorf("splitKey of %q: %q, %q, %v", f+"x", name, rest, ok)
			}
		}
	}
	for f := range seen {
		for g := range seen {
			if f != g && strings.HasPrefix(f, g) {
				t.Errorf("%q lies in %q", f, g)
			}
		}
	}
}

func TestNames(t *testing.T) {
	for _, share := range []backend.Share{{}, backend.Reader, {Weight: 2, Capacity: 10}} {
		in := name{share, 0x694d, 7}
		p := in.String()
		if out, ok := parseName(p); !ok || out != in {
			t.Errorf("%q: %+v, %v", p, out, ok)
		}
		for _, s := range []string{
			"", "694d", p + "x", p[:len(p)-1], p[:len(p)-1] + "-7", p[:len(p)-1] + "07", p[1:], strings.ToUpper(p), strings.Replace(p, "-", "_", 1), "%r" + p, "%p" + p, "%p010-2-" + p, "%p10-11-" + p, "%p0-1-" + p,
		} {
			if out, ok := parseName(s); ok {
				t.Errorf("%q was taken for ours: %+v", s, out)
			}
		}
	}
	p := name{lease: 0x694d, number: 7}.String()
	if _, _, ok := splitKey("lock/", "lock/"+markers+"/"+p); ok {
		t.Error("a marker was taken for a lock")
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("a/b%", "a%2Fb%25")
	f.Fuzz(func(t *testing.T, a, b string) {
		ea := escape(a)
		if back, ok := unescape(ea); !ok || back != a {
			t.Fatalf("%q: %q back to %q, %v", a, ea, back, ok)
		}
		if (a == b) != (ea == escape(b)) || strings.Contains(ea, "/") || ea == markers {
			t.Fatalf("%q and %q: %q", a, b, ea)
		}
		if raw, ok := unescape(a); ok && escape(raw) != a {
			t.Fatalf("%q: accepted as %q", a, raw)
		}
	})
}
