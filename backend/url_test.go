package backend_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
)

// backend.Register panics if a scheme is registered twice, and a test may run twice (-count).
func init() {
	backend.Register("toy", func(_ context.Context, u *backend.URL) (backend.Backend, error) {
		u.Params.String("colour", "")
		return toyBackend{}, nil
	})
}

// toyBackend has only Close: Open closes a backend if a parameter is unknown.
type toyBackend struct{ backend.Backend }

func (toyBackend) Close(context.Context) error { return nil }

func TestParseURL(t *testing.T) {
	for in, want := range map[string]struct{ scheme, hosts, path, user string }{
		"redis://localhost:6379/0?ttl=30s":        {"redis", "localhost:6379", "/0", ""},
		"redis://me:p%40ss@h1:1,h2:2,[::1]:3/0":   {"redis", "h1:1 h2:2 [::1]:3", "/0", "me"},
		"file:///var/lib/a%20b":                   {"file", "", "/var/lib/a b", ""},
		"file:rel/dir%20x?prefix=p":               {"file", "", "rel/dir x", ""},
		"mem:":                                    {"mem", "", "", ""},
		"mem://name":                              {"mem", "name", "", ""},
		"redis+sentinel://h1,h2:26379/mymaster/3": {"redis+sentinel", "h1 h2:26379", "/mymaster/3", ""},
		"redlock://u:p@h1,h2:1,h3/2?durable=true": {"redlock", "h1 h2:1 h3", "/2", "u"},
	} {
		u, err := backend.ParseURL(in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		hosts := strings.Join(u.Hosts, " ")
		if u.Scheme != want.scheme || hosts != want.hosts || u.Path != want.path || u.User.Username() != want.user {
			t.Errorf("%s: got %+v", in, u)
		}
	}
}

// A password whose special characters are not escaped makes a URL malformed, or looks like a port, a
// path or a parameter. No error may contain it.
func TestURLErrorsNameTheFaultAndNoSecret(t *testing.T) {
	for in, want := range map[string]string{
		"":                                  "no scheme",
		"localhost/0":                       "no scheme",
		"user:secret@host":                  `URL scheme "user": no such driver`,
		"redis://u:sec ret@host":            "malformed",
		"redis://u:secret@host:port":        "malformed",
		"redis://u:sec/ret@host:1":          "malformed",
		"redis://host/0#secret":             "malformed",
		"redis://host/0?a=%zz":              "malformed",
		"redis://h1,,h2":                    "URL hosts",
		"redis://u:secret%zz@host":          "malformed",
		"redis://u:12/secret@host:6379/0":   "malformed",
		"redis://u:12?secret@host:6379/0":   "malformed",
		"redis://:12/34secret@h/0":          "malformed",
		"mem://u:12?secret@host":            "malformed",
		"redis://host/0?ttl=1s&ttl=secret;": "malformed",
	} {
		u, err := backend.ParseURL(in)
		if err == nil {
			_, err = backend.Open(context.Background(), u)
		}
		if !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%q: got %v, want ErrInvalid", in, err)
			continue
		}
		if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "sec ret") {
			t.Errorf("%q: the error shows the secret: %v", in, err)
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q does not say %q", in, err, want)
		}
	}
}

func TestHostPort(t *testing.T) {
	for host, want := range map[string]string{
		"redis.example":      "redis.example:6379",
		"redis.example:7000": "redis.example:7000",
		"redis.example:":     "redis.example:",
		"127.0.0.1":          "127.0.0.1:6379",
		"127.0.0.1:7000":     "127.0.0.1:7000",
		"::1":                "[::1]:6379",
		"[::1]":              "[::1]:6379",
		"[::1]:7000":         "[::1]:7000",
		"fe80::1%eth0":       "[fe80::1%eth0]:6379",
		"[fe80::1%eth0]":     "[fe80::1%eth0]:6379",
	} {
		if got := backend.HostPort(host, "6379"); got != want {
			t.Errorf("%q: got %q, want %q", host, got, want)
		}
	}
}

func TestParams(t *testing.T) {
	read := func(query string) (values string, err error) {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		p := backend.NewParams(q)
		values = fmt.Sprintln(p.Duration("d", time.Second), p.String("s", "x"), p.Enum("e", "one", "one", "two"),
			p.Int("i", 3, 1, 5), p.Bool("b", false))
		return strings.TrimSpace(values), p.Err()
	}
	const defaults = "1s x one 3 false"
	for query, want := range map[string]string{
		"":        defaults,
		"d=5m":    "5m0s x one 3 false",
		"s=a%26b": "1s a&b one 3 false",
		"e=two":   "1s x two 3 false",
		"i=5":     "1s x one 5 false",
		"b=true":  "1s x one 3 true",
	} {
		if got, err := read(query); got != want || err != nil {
			t.Errorf("%q: got %s, %v, want %s", query, got, err, want)
		}
	}
	for query, want := range map[string]string{
		"d=0":           `invalid URL parameter d "0": want a positive duration`,
		"d=-1s":         `parameter d "-1s"`,
		"d=10":          `parameter d "10"`,
		"i=6":           `parameter i "6": want a whole number from 1 to 5`,
		"i=x":           `parameter i "x"`,
		"b=1":           `parameter b "1": want true or false`,
		"e=three":       `parameter e "three": want one of one, two`,
		"d=1s&d=2s":     `parameter d "given 2 times"`,
		"passwd=secret": `invalid URL parameter "passwd": unknown; accepted: b, d, e, i, s`,
	} {
		got, err := read(query)
		if got != defaults {
			t.Errorf("%q: got %s, want the defaults", query, got)
		}
		if !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", query, err, want)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error shows the value of an unknown parameter", query)
		}
	}
}

func TestParamRetention(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"": backend.DefaultRetention, "0": 0, "0s": 0, "1m": time.Minute, "48h": 48 * time.Hour,
	} {
		q := url.Values{}
		if value != "" {
			q.Set("retention", value)
		}
		p := backend.NewParams(q)
		if got := p.Retention(); got != want || p.Err() != nil {
			t.Errorf("%q: got %v, %v, want %v", value, got, p.Err(), want)
		}
	}
	for _, value := range []string{"59s", "-1h", "1", "long"} {
		p := backend.NewParams(url.Values{"retention": {value}})
		p.Retention()
		if err := p.Err(); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), "want 1m or more, or 0") {
			t.Errorf("%q: got %v, want the bounds", value, err)
		}
	}
}

func TestOpen(t *testing.T) {
	open := func(s string) error {
		u, err := backend.ParseURL(s)
		if err != nil {
			t.Fatal(err)
		}
		_, err = backend.Open(t.Context(), u)
		return err
	}
	for in, want := range map[string]string{
		"redis://h":     `import _ "github.com/interlock-go/lock/redislock"`,
		"redlock://a,b": `import _ "github.com/interlock-go/lock/redislock/redlock"`,
		"nosuch://h":    `no such driver (registered: toy; not linked in: etcd, etcds, file, mariadb, mem, memcached,`,
		"toy://h?x=1":   `"x": unknown; accepted: colour`,
		"toy://h?x=1&y": `"x": unknown`,
	} {
		if err := open(in); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", in, err, want)
		}
	}
	if err := open("toy://h?colour=red"); err != nil {
		t.Error(err)
	}
}

func TestRegisterTwicePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a scheme was registered twice")
		}
	}()
	backend.Register("toy", func(context.Context, *backend.URL) (backend.Backend, error) { return toyBackend{}, nil })
}

func FuzzParseURL(f *testing.F) {
	for _, s := range []string{
		"redis://u:p@h:1,h2/0?ttl=30s&prefix=a", "file:rel?x", "mem:", "a://b#c", "redis://[::1]:5/%41",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := backend.ParseURL(s)
		if err != nil {
			if !errors.Is(err, backend.ErrInvalid) {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		if u.Scheme == "" || u.Params == nil {
			t.Fatalf("%q: %+v", s, u)
		}
		_ = u.Params.Err() // must not panic
	})
}
