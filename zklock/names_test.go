package zklock

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
)

func TestEscape(t *testing.T) {
	for name, want := range map[string]string{
		"orders": "orders", "a/b": "a%2Fb", ".": "%2E", "..": "%2E.", "a.b": "a.b", "...": "%2E..", "a b": "a%20b", "50%": "50%25",
		"%2F": "%252F", "é": "%C3%A9", "\x00": "%00", "\x7f": "%7F", "zookeeper": "zookeeper", "a\\b": "a\\b",
	} {
		if got := escape(name); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
		if got, ok := unescape(want); !ok || got != name {
			t.Errorf("%q: unescaped %q, %v", name, got, ok)
		}
	}
	for _, node := range []string{"", "%", "%2", "%2f", "%41", "a%", "a/b", "%zz", ".", "é", strings.Repeat("a", backend.MaxName+1)} {
		if name, ok := unescape(node); ok {
			t.Errorf("%q is not the node of a lock, got %q", node, name)
		}
	}
}

func FuzzEscape(f *testing.F) {
	for _, s := range []string{"a", "a/b", ".", "%2F", "\xff", "é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if name == "" || len(name) > backend.MaxName {
			return
		}
		node := escape(name)
		if got, ok := unescape(node); !ok || got != name {
			t.Fatalf("%q is %q, unescaped %q, %v", name, node, got, ok)
		}
		if strings.ContainsAny(node, "/\x00") || node == "." || node == ".." {
			t.Fatalf("%q is %q", name, node)
		}
	})
}

func TestQueue(t *testing.T) {
	owner := func(c string) string { return strings.Repeat(c, ownerLen) + "-" }
	first, second, third := owner("d")+"0000000009", owner("c")+"0000000010", owner("b")+"2146435071"
	others := []string{
		owner("a") + "2146435072", owner("a") + "2147483647", owner("a") + "-2147483648", // without a place in the queue
		"lock-0000000001", owner("e"), owner("e") + "1", owner("e") + "00000000xx", owner("E") + "0000000001", owner("e") + "2147483648",
		owner("e") + "+000000001", "_c_" + owner("e") + "0000000001", strings.Repeat("e", ownerLen) + "0000000001",
	}
	var got []string
	for _, c := range inOrder(append([]string{third, first, second}, others...)) {
		got = append(got, c.node)
	}
	if want := []string{first, second, third}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestParse(t *testing.T) {
	parseURL := func(s string) (*Backend, error) {
		u, err := backend.ParseURL(s)
		if err != nil {
			t.Fatal(err)
		}
		return parse(u)
	}
	b, err := parseURL("zk://me:pa%40ss@h1,h2:2182,[::1]/app/locks?prefix=p&auth=digest")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(b.svc.addrs, " "); got != "h1:2181 h2:2182 [::1]:2181" {
		t.Errorf("addresses %q", got)
	}
	if b.svc.base != "/app/locks/p" || b.svc.lockNode("a/b") != "/app/locks/p/a%2Fb" || string(b.svc.auth) != "me:pa@ss" || b.svc.opt.acl[0].Scheme != "auth" {
		t.Errorf("got %+v", b)
	}
	for url, want := range map[string]string{
		"zk:///x":                         "URL hosts",
		"zk://h?prefix=a/b":               "prefix",
		"zk://h?prefix=":                  "prefix",
		"zk://h?prefix=.":                 "prefix",
		"zk://h//x":                       "chroot",
		"zk://h/a/../b":                   "chroot",
		"zk://h?auth=digest":              "needs user:password@",
		"zk://secret@h":                   "user:password@",
		"zk://h?auth=kerberos":            "auth",
		"zk://h?tls_ca=x":                 "need tls=true",
		"zk://h?tls=true&tls_ca=/nowhere": "tls_ca",
		"zk://h?tls=true&tls_cert=x":      "need each other",
		"zk://h?dial_timeout=0":           "dial_timeout",
	} {
		if _, err := parseURL(url); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, want %s", url, err, want)
		}
	}
}

// outcome is how a driver classifies an error.
type outcome int

const (
	unknown outcome = iota
	notExecuted
	ended // the session: the caller decides
)

func TestExplainChange(t *testing.T) {
	for err, want := range map[error]outcome{
		zk.ErrConnectionClosed: unknown, zk.ErrClosing: unknown, errors.New("write: broken pipe"): unknown, zk.ErrSessionExpired: unknown,
		zk.ErrNoNode: notExecuted, zk.ErrNoAuth: notExecuted, zk.ErrNodeExists: notExecuted, errors.New("unknown error: -127"): notExecuted,
		notSent{errors.New("ended before")}: notExecuted, errSessionExpired: ended,
	} {
		got := explainChange(err, "/x")
		uncertain, outcomeUnknown := errors.Is(got, backend.ErrUncertain), backend.OutcomeUnknown(got)
		if uncertain != (want == unknown) || outcomeUnknown != (want != notExecuted) || !errors.Is(got, err) {
			t.Errorf("%v: got %v", err, got)
		}
	}
}
