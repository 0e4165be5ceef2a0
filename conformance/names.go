package conformance

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

var nameCases = []Case{
	{
		ID:     "names/36-nasty-names",
		Title:  "names with every kind of character are locks of their own, held all at once",
		Clause: "The driver escapes a name injectively for its service: no two names share a lock.",
		run:    nastyNames,
	},
	{
		ID:     "names/36-refused",
		Title:  "an empty or too long name is refused, and the error names it",
		Clause: "A request that can never succeed is refused with ErrInvalid, which names the field and what is accepted.",
		run:    namesRefused,
	},
	{
		ID:     "names/36-many-names",
		Title:  "100,000 generated names are stored under as many keys",
		Clause: "The driver escapes a name injectively for its service: no two names share a lock.",
		needs:  []need{needKeyOf},
		alone:  true,
		run:    manyNames,
	},
	{
		ID:     "names/36-prefix-isolates",
		Title:  "a prefix isolates two applications on one service",
		Clause: "Two prefixes share no lock, whatever the names.",
		needs:  []need{needOpenPrefix},
		run:    prefixIsolates,
	},
}

// nasty returns names that a careless escaping confuses or refuses.
func nasty(most int) []string {
	long := strings.Repeat("x", most)
	names := []string{
		".", "..", "...", "/", "//", "a", "A", "a/b", "a//b", "a/./b", "a/../b", "/a", "a/", "a/b/", "../a", "..\\a", "\\", "a\\b", "\\\\",
		" ", "  ", " a", "a ", "a  ", "\ta", "a\t", "\n", "a\n", "a\r\n", "\x00", "a\x00", "a\x00b", "\x01", "\x7f", "\x1b[31m",
		"%", "%%", "%2F", "%2f", "%252F", "a%2Fb", "a%00b", "%a", "a+b", "a%20b", "a b", "a_b", "a-b", "a.b", "a:b", "a;b", "a,b",
		"é", "e\u0301", "É", "ß", "ss", "SS", "ẞ", "İ", "i̇", "ı", "I", "i", "ﬁ", "fi", "名前", "🔒", "🔓", "\u200b", "a\u200b", "\u202eabc", "\ufeffa", "\ufeff",
		"\xff", "\xfe", "\xc3", "\xc3\x28", "\xff\xfe", "a\xff", "\ufffd", "a\ufffd",
		"'", "\"", "`", "a'b", "a''b", "'; DROP TABLE locks; --", "$1", "${x}", "$(x)", "{a}", "{a}b", "{", "}", "{}", "[a]", "*", "?", "a*", "a?", "#", "!", "~", "~a", "|", "<a>", "&",
		"CON", "con", "NUL", "nul.txt", "aux", "lock", ".lock", "a.lock", "-", "--", "-a", "0", "00", "nil", "null", "true",
		hex.EncodeToString([]byte("a")), hex.EncodeToString([]byte("a/b")), strings.ToUpper(hex.EncodeToString([]byte("a/b"))),
		base64.StdEncoding.EncodeToString([]byte("a/b")), base64.RawURLEncoding.EncodeToString([]byte("a/b")), url.QueryEscape("a b/c"), url.PathEscape("a b/c"),
		long, long[:most-1], long[:most-1] + "y", "y" + long[1:], strings.Repeat("X", most), strings.Repeat("/", most), strings.Repeat("\xff", most),
	}
	for _, n := range []int{31, 32, 63, 64, 65, 127, 128, 191, 192, 254, 255, 256, 257, 511, 512} {
		if n < most {
			// names that differ in their last byte only, around the limits of services
			names = append(names, long[:n]+"a", long[:n]+"b", long[:n])
		}
	}
	// what drivers are likely to append to a name for their own purposes
	for _, suffix := range []string{":lock", ":l", ":q", ":queue", ":f", ":fence", ":token", ":t", ".fence", ".token", ".q", "-fence", "/fence", "/lock", "/", ":", "::", "\x00fence"} {
		names = append(names, "name"+suffix, "{name}"+suffix)
	}
	var out []string
	seen := map[string]bool{}
	for _, n := range names {
		if len(n) <= most && !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
	}
	return out
}

func (t *T) maxName() int {
	if t.caps.MaxName > 0 {
		return t.caps.MaxName
	}
	return backend.MaxName
}

func nastyNames(t *T) {
	// A short name cannot carry this run's key without changing, so runs on one service
	// are kept apart by the prefix, where there is one.
	open := t.open
	if t.h.OpenPrefix != nil {
		prefix := t.key("p")
		open = func() backend.Backend {
			b, err := t.h.OpenPrefix(t.ctx, prefix)
			if err != nil {
				t.fatalf("OpenPrefix: %v", err)
			}
			t.later(func(ctx context.Context) { _ = b.Close(ctx) })
			return b
		}
	}
	c, other := t.clientOf(open()), t.clientOf(open())
	names := nasty(t.maxName())
	if t.o.full {
		for range 2000 {
			names = append(names, generated(t.maxName()))
		}
	}
	seen := map[string]bool{}
	var leases []*lock.Lease
	for _, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		l, err := c.Mutex(name).TryLock(t.ctx)
		switch {
		case err == nil:
			leases = append(leases, l)
			if l.Name() != name {
				t.errorf("Name of the lease of %.60q: got %.60q", name, l.Name())
			}
		case errors.Is(err, lock.ErrInvalid):
			// refused by name, which is allowed: then it locks nothing either
		case errors.Is(err, lock.ErrLocked):
			t.errorf("name %.60q of %d bytes, with %d others held: want a lock of its own, it is locked already: %v", name, len(name), len(leases), err)
		default:
			t.errorf("name %.60q of %d bytes: want a grant or ErrInvalid, got %v", name, len(name), err)
		}
	}
	if len(leases) < len(names)/2 {
		t.errorf("names accepted: want most of %d, got %d", len(names), len(leases))
	}
	for _, l := range leases {
		if _, err := other.Mutex(l.Name()).TryLock(t.ctx); !errors.Is(err, lock.ErrLocked) {
			t.errorf("name %.60q, held by another client: want ErrLocked, got %v", l.Name(), err)
		}
	}
	if _, ok := t.probe.(backend.Lister); ok {
		listed := map[string]int{}
		for info, err := range other.List(t.ctx) {
			if err != nil {
				if !errors.Is(err, errors.ErrUnsupported) {
					t.errorf("List: want the held names, got %v", err)
				}
				listed = nil
				break
			}
			listed[info.Name]++
		}
		for _, l := range leases {
			if listed != nil && listed[l.Name()] != 1 {
				t.errorf("List: want the name %.60q once and as it was given, got it %d times", l.Name(), listed[l.Name()])
			}
		}
	}
	for _, l := range leases {
		if err := l.Unlock(t.ctx); err != nil {
			t.errorf("Unlock of the name %.60q: want nil, got %v", l.Name(), err)
		}
	}
}

// generated returns a random name from an alphabet of troublemakers.
func generated(most int) string {
	const alphabet = "aAbB019 ./\\:%{}_-~\x00\xff\n'\"*é"
	n := 1 + rand.IntN(min(12, most))
	var b strings.Builder
	for range n {
		b.WriteByte(alphabet[rand.IntN(len(alphabet))])
	}
	return b.String()[:min(b.Len(), most)]
}

func namesRefused(t *T) {
	c := t.client()
	for _, name := range []string{"", strings.Repeat("x", t.maxName()+1), strings.Repeat("x", 100_000)} {
		for call, f := range map[string]func() error{
			"TryLock": func() error { _, err := c.Mutex(name).TryLock(t.ctx); return err },
			"Lock":    func() error { _, err := c.Mutex(name).Lock(t.ctx); return err },
		} {
			err := f()
			if !errors.Is(err, lock.ErrInvalid) || !strings.Contains(fmt.Sprint(err), "name") || len(fmt.Sprint(err)) > 500 {
				t.errorf("%s of a name of %d bytes: want a short ErrInvalid that says name, got %.600v", call, len(name), err)
			}
		}
	}
}

func manyNames(t *T) {
	const want = 100_000
	names := map[string]bool{}
	for _, n := range nasty(t.maxName()) {
		names[n] = true
	}
	for len(names) < want {
		names[generated(t.maxName())] = true
	}
	byKey := make(map[string]string, len(names))
	for n := range names {
		k := t.h.KeyOf(n)
		if other, taken := byKey[k]; taken {
			t.errorf("names %.60q and %.60q: want different keys, both are stored under %.60q", n, other, k)
		}
		byKey[k] = n
	}
}

func prefixIsolates(t *T) {
	var cs []*lock.Client
	unique := t.key("")
	// prefixes of which one begins like another, and with names that continue them
	for _, p := range []string{unique + "a", unique + "ab", unique + "a/b", unique + "a:"} {
		b, err := t.h.OpenPrefix(t.ctx, p)
		if errors.Is(err, backend.ErrInvalid) && len(cs) >= 2 {
			continue // a driver may refuse what it could not keep apart
		}
		if err != nil {
			t.fatalf("OpenPrefix %q: %v", p, err)
		}
		cs = append(cs, t.clientOf(b))
	}
	for _, name := range []string{"name", "bname", "b/name", "/b/name", ":name", "b:name"} {
		var leases []*lock.Lease
		for i, c := range cs {
			l, err := c.Mutex(name).TryLock(t.ctx)
			if err != nil {
				t.errorf("name %q under prefix %d, held under the others: want a grant, got %v", name, i, err)
				continue
			}
			leases = append(leases, l)
		}
		for i, c := range cs {
			n := 0
			for info, err := range c.List(t.ctx) {
				if errors.Is(err, errors.ErrUnsupported) {
					n = 1
					break
				}
				if err != nil {
					t.fatalf("List: %v", err)
				}
				n++
				if info.Name != name {
					t.errorf("List under prefix %d: want %q only, got %q", i, name, info.Name)
				}
			}
			if n != 1 {
				t.errorf("List under prefix %d: want 1 lock, got %d", i, n)
			}
		}
		for _, l := range leases {
			t.mustUnlock(l, "a holder")
		}
	}
}
