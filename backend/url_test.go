package backend_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
)

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
		if hosts := strings.Join(u.Hosts, " "); u.Scheme != want.scheme || hosts != want.hosts || u.Path != want.path || u.User.Username() != want.user {
			t.Errorf("%s: got %+v", in, u)
		}
	}
}

func TestURLErrorsNameTheFaultAndNoSecret(t *testing.T) {
	for in, want := range map[string]string{
		"":                                  "no scheme",
		"localhost/0":                       "no scheme",
		"user:secret@host":                  "malformed", // parsed as scheme "user": refused below or here
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
		if in != "user:secret@host" && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q does not say %q", in, err, want)
		}
	}
}

func TestParams(t *testing.T) {
	read := func(query string) (*backend.Params, string) {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		p := backend.NewParams(q)
		got := strings.Join([]string{
			p.Duration("d", time.Second).String(), p.String("s", "x"), p.Enum("e", "one", "one", "two"),
		}, " ")
		if p.Int("i", 3, 1, 5) != 3 && query != "i=5" || p.Bool("b", false) && query != "b=true" {
			t.Errorf("%q: Int or Bool", query)
		}
		return p, got
	}
	for query, want := range map[string]string{
		"": "1s x one", "d=5m": "5m0s x one", "s=a%26b": "1s a&b one", "e=two": "1s x two", "i=5": "1s x one", "b=true": "1s x one",
	} {
		if p, got := read(query); got != want || p.Err() != nil {
			t.Errorf("%q: got %s, %v", query, got, p.Err())
		}
	}
	for query, want := range map[string]string{
		"d=0":       `invalid URL parameter d "0": want a positive duration`,
		"d=-1s":     `parameter d "-1s"`,
		"d=10":      `parameter d "10"`,
		"i=6":       `parameter i "6": want a whole number from 1 to 5`,
		"i=x":       `parameter i "x"`,
		"b=1":       `parameter b "1": want true or false`,
		"e=three":   `parameter e "three": want one of one, two`,
		"d=1s&d=2s": `parameter d "given 2 times"`,
		"passwd=s3": `invalid URL parameter "passwd": unknown; accepted: b, d, e, i, s`,
	} {
		p, _ := read(query)
		if err := p.Err(); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", query, err, want)
		} else if strings.Contains(err.Error(), "s3") {
			t.Errorf("%q: the error shows an unknown parameter's value", query)
		}
	}
}

func TestParamRetention(t *testing.T) {
	for value, want := range map[string]time.Duration{"": backend.DefaultRetention, "0": 0, "0s": 0, "1m": time.Minute, "48h": 48 * time.Hour} {
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
		if p.Retention(); !errors.Is(p.Err(), backend.ErrInvalid) || !strings.Contains(p.Err().Error(), "or 0 to remove nothing") {
			t.Errorf("%q: got %v, want what is accepted", value, p.Err())
		}
	}
}

func TestRegistry(t *testing.T) {
	ctx := context.Background()
	open := func(s string) error {
		u, err := backend.ParseURL(s)
		if err != nil {
			t.Fatal(err)
		}
		_, err = backend.Open(ctx, u)
		return err
	}
	backend.Register("toy", func(_ context.Context, u *backend.URL) (backend.Backend, error) {
		u.Params.String("colour", "")
		return closer{}, nil
	})
	for url, want := range map[string]string{
		"redis://h":     `import _ "github.com/interlock-go/lock/redislock"`,
		"redlock://a,b": `import _ "github.com/interlock-go/lock/redislock/redlock"`,
		"nosuch://h":    `no such driver (registered: toy; not linked in: etcd, etcds, file, mariadb, mem, memcached, memcacheds, mysql`,
		"toy://h?x=1":   `"x": unknown; accepted: colour`,
		"toy://h?x=1&y": `"x": unknown`,
	} {
		if err := open(url); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", url, err, want)
		}
	}
	if err := open("toy://h?colour=red"); err != nil {
		t.Error(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a scheme was registered twice")
		}
	}()
	backend.Register("toy", nil)
}

type closer struct{ backend.Backend }

func (closer) Close(context.Context) error { return nil }

func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"redis://u:p@h:1,h2/0?ttl=30s&prefix=a", "file:rel?x", "mem:", "a://b#c", "redis://[::1]:5/%41"} {
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
		_ = u.Params.Err()
	})
}
