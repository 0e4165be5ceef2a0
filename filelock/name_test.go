package filelock

import (
	"fmt"
	"strings"
	"testing"
)

func TestDirName(t *testing.T) {
	for _, c := range []struct{ prefix, name, want string }{
		{"", "orders", "orders"},
		{"", "orders/42", "orders%2f42"},
		{"", "Orders", "%4frders"},
		{"", ".", "%2e"},
		{"", "..", "%2e."},
		{"", "a.b", "a.b"},
		{"", "%2e", "%252e"},
		{"", "a\x00\xff", "a%00%ff"},
		{"shop", "orders", "shop@orders"},
		{"", "shop@orders", "shop%40orders"},
		{"a@b", "c", "a%40b@c"},
	} {
		if got := dirName(c.prefix, c.name); got != c.want {
			t.Errorf("%q, %q: %q, want %q", c.prefix, c.name, got, c.want)
		}
	}
	long := dirName("", strings.Repeat("a", 1024))
	if !strings.HasPrefix(long, "aaaa") || len(long) > maxDirName || long == dirName("", strings.Repeat("a", 1023)) {
		t.Errorf("long name: %q", long)
	}
	if got := dirName("", strings.Repeat("A", 1024)); strings.Contains(got, "%~") || strings.Contains(got, "%4~") || len(got) > maxDirName {
		t.Errorf("half an escape: %q", got)
	}
}

func TestManyNames(t *testing.T) {
	seen := map[string]string{}
	for i := range 100_000 {
		name := fmt.Sprintf("%c%d/%c", rune(i%300), i, rune(i%7+'A'))
		d := strings.ToLower(dirName("", name))
		if old, dup := seen[d]; dup && old != name {
			t.Fatalf("%q and %q share %q", old, name, d)
		}
		seen[d] = name
	}
}

func FuzzDirName(f *testing.F) {
	f.Add("", "orders/42", "", "Orders/42")
	f.Add("a", "b", "", "a@b")
	f.Add("", "..", "", "%2e.")
	f.Add("p", strings.Repeat("x", 300), "p", strings.Repeat("x", 299)+"y")
	f.Add(strings.Repeat("Z", maxPrefix), strings.Repeat("\xff", 1024), "", ".")
	f.Fuzz(func(t *testing.T, prefix1, name1, prefix2, name2 string) {
		check := func(prefix, name string) string {
			d := dirName(prefix, name)
			if len(d) > maxDirName || d == "" || d[0] == '.' || d != strings.ToLower(d) || strings.ContainsAny(d, "/\\\x00") {
				t.Fatalf("%q, %q: unsafe directory name %q", prefix, name, d)
			}
			rest, ours := strings.CutPrefix(d, dirPrefix(prefix))
			if got, ok := unescape(rest); !ours || ok && got != name || ok == strings.ContainsRune(d, hashMark) {
				t.Fatalf("%q, %q: %q is read as %q, %v, %v", prefix, name, d, got, ok, ours)
			}
			if got, ok := unescape(escape(name)); !ok || got != name {
				t.Fatalf("%q is unescaped to %q, %v", name, got, ok)
			}
			return d
		}
		if name1 == "" || name2 == "" || len(prefix1) > maxPrefix || len(prefix2) > maxPrefix {
			t.Skip()
		}
		d1, d2 := check(prefix1, name1), check(prefix2, name2)
		if (d1 == d2) != (prefix1 == prefix2 && name1 == name2) {
			t.Fatalf("%q %q and %q %q: %q, %q", prefix1, name1, prefix2, name2, d1, d2)
		}
		if rest, ours := strings.CutPrefix(d1, dirPrefix(prefix2)); ours && prefix1 != prefix2 {
			if name, ok := unescape(rest); ok {
				t.Fatalf("%q is taken for %q under prefix %q", d1, name, prefix2)
			}
		}
	})
}
