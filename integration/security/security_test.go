// Package security_test turns against every driver what an attacker has: names,
// metadata and URL parameters of the worst kind, and servers that are not who they
// say, or do not know who asks.
package security_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/provision"
)

// target is a service, reached as the product's user reaches it.
type target struct {
	// url has the right credentials and, where there is TLS, the right authority.
	url string
	// refused are URLs that must not be served, each with what its error says.
	refused map[string]refusal
	// others returns everything at the service that does not belong to the locks, so that it can be
	// compared. It includes something that was put there as a bait.
	others func(t *testing.T) []string
	// params are names of URL parameters whose values are sent to the service.
	params []string
}

type refusal struct{ url, says string }

// with sets parameters of a URL, and takes away those that are given without a value.
func with(raw string, params ...string) string {
	u, err := url.Parse(raw)
	if err != nil {
		panic(err)
	}
	q := u.Query()
	for i := 0; i < len(params); i += 2 {
		if q.Del(params[i]); params[i+1] != "" {
			q.Set(params[i], params[i+1])
		}
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// as sets user and password of a URL; no user, no password.
func as(raw, user, password string) string {
	u, err := url.Parse(raw)
	if err != nil {
		panic(err)
	}
	if u.User = url.UserPassword(user, password); user == "" && password == "" {
		u.User = nil
	}
	return u.String()
}

func scheme(raw, s string) string {
	_, rest, _ := strings.Cut(raw, "://")
	return s + "://" + rest
}

// wrong is a password that is not the right one, and must be as secret.
const wrong = provision.Secret + "-wrong"

func TestSecurity(t *testing.T) {
	for name, start := range map[string]func(*testing.T) target{
		"redis": redisTarget, "etcd": etcdTarget, "zookeeper": zookeeperTarget, "postgres": postgresTarget, "mysql": mysqlTarget,
		"file": fileTarget, "memory": memoryTarget, "memcached": memcachedTarget, "nats": natsTarget, "s3": s3Target,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			t.Run("Refused", func(t *testing.T) { refusals(t, s) })
			t.Run("Names", func(t *testing.T) { hostileNames(t, s) })
			t.Run("Metadata", func(t *testing.T) { hostileMetadata(t, s) })
			t.Run("Parameters", func(t *testing.T) { hostileParameters(t, s) })
		})
	}
}

// said collects all that a client logs and returns as errors, and searches it.
type said struct {
	t  *testing.T
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func newSaid(t *testing.T) *said {
	s := &said{t: t}
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		text := s.b.String()
		if strings.Contains(text, provision.Secret) {
			t.Errorf("a password was said: %s", strings.ReplaceAll(text, provision.Secret, "(the password)"))
		}
		// DEL does nothing to a terminal, and slog's own handler leaves it as it is.
		if i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' && r != '\n' }); i >= 0 {
			t.Errorf("a control character was written to the log as it is: %q", text[max(0, i-200):min(len(text), i+100)])
		}
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "time=") && !strings.HasPrefix(line, "error=") {
				t.Errorf("a line was smuggled into the log: %q", line)
			}
		}
	})
	return s
}

func (s *said) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(s, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// note records an error as a program that prints it would.
func (s *said) note(err error) {
	if err != nil {
		for _, form := range []string{"%v", "%+v", "%s"} {
			fmt.Fprintf(s, "error="+form+"\n", err)
		}
	}
}

func (s *said) open(url string, opts ...lock.Option) (*lock.Client, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	c, err := lock.Open(ctx, url, append(opts, lock.WithLogger(s.logger()), lock.WithTTL(20*time.Second))...)
	s.note(err)
	if err == nil {
		s.t.Cleanup(func() { s.note(c.Close(context.Background())) })
	}
	return c, err
}

func refusals(t *testing.T, s target) {
	log := newSaid(t)
	c, err := log.open(s.url)
	if err != nil {
		t.Fatalf("the right credentials: %v", err)
	}
	l, err := c.Mutex("allowed").TryLock(t.Context())
	if err == nil {
		err = l.Unlock(t.Context())
	}
	if err != nil {
		t.Fatalf("the right credentials: %v", err)
	}
	for what, r := range s.refused {
		c, err := log.open(r.url)
		if err == nil { // some services answer only to a request
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			var l *lock.Lease
			if l, err = c.Mutex("refused").TryLock(ctx); err == nil {
				_ = l.Unlock(ctx)
			}
			cancel()
			log.note(err)
		}
		if err == nil || !strings.Contains(err.Error(), r.says) {
			t.Errorf("%s: want an error with %q, got %v", what, r.says, err)
		}
	}
}

// hostile are texts that mean something to one of the services, a file system, a
// terminal, or a log.
func hostile() []string {
	return []string{
		"'; DROP TABLE bystander; --", `"; DROP TABLE bystander; --`, "`; DROP TABLE bystander; -- ", "') ON DUPLICATE KEY UPDATE token=0; --", `\'; DELETE FROM bystander; -- `,
		"$1; DROP TABLE bystander", "%s%s%n", "{{.}}", "${jndi:ldap://x}", "$(touch /tmp/bystander)", "`touch bystander`", "| touch bystander", "a;b", "a\\0b",
		"]]redis.call('FLUSHALL')--[[", "'..redis.call('DEL','bystander')..'", "\r\nFLUSHALL\r\n", "\r\nflush_all\r\n", "*1\r\n$8\r\nFLUSHALL\r\n", "bystander", "{bystander}", "*", "?", "[a-z]*", "lock:*",
		"..", "../bystander", "../../bystander", "/bystander", "..\\bystander", "a/../../bystander", "./.", "//", "%2e%2e%2fbystander", "..%00", "/zookeeper/quota", "/etc/passwd",
		"\x00", "a\x00bystander", "\n", "a\nlevel=ERROR msg=forged", "\r", "\x1b[2J\x1b]0;title\x07", "\x7f", "\u202etxt.exe", "\xff\xfe", "\u2028",
		strings.Repeat("x", 1024), strings.Repeat("'", 1024), strings.Repeat("../", 341), strings.Repeat("\x00", 1024), strings.Repeat("é", 512),
	}
}

// untouched compares what is not the locks' before and after.
func (s target) untouched(t *testing.T) func(what string) {
	before := s.others(t)
	if len(before) == 0 {
		t.Fatal("there is no bait, so the test could not fail")
	}
	return func(what string) {
		t.Helper()
		if after := s.others(t); !slices.Equal(before, after) {
			t.Errorf("%s: what is not the locks' was\n%q and is\n%q", what, before, after)
		}
	}
}

func hostileNames(t *testing.T, s target) {
	log := newSaid(t)
	c, err := log.open(s.url)
	if err != nil {
		t.Fatal(err)
	}
	rival, err := log.open(s.url)
	if err != nil {
		t.Fatal(err)
	}
	check := s.untouched(t)
	accepted := 0
	for _, name := range hostile() {
		l, err := c.Mutex(name).TryLock(t.Context())
		log.note(err)
		if errors.Is(err, lock.ErrInvalid) {
			if !strings.Contains(err.Error(), "name") || len(err.Error()) > 500 {
				t.Errorf("name %.40q: refused without saying why, or at length: %.600v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("name %.40q: want a lock or ErrInvalid, got %v", name, err)
			continue
		}
		accepted++
		_, err = rival.Mutex(name).TryLock(t.Context())
		if log.note(err); !errors.Is(err, lock.ErrLocked) {
			t.Errorf("name %.40q: want it locked, got %v", name, err)
		}
		info, err := rival.Inspect(t.Context(), name)
		if log.note(err); !errors.Is(err, errors.ErrUnsupported) && (err != nil || info.Name != name || info.Holder == nil) {
			t.Errorf("name %.40q: inspected %+v, %v", name, info, err)
		}
		removed, err := rival.Break(t.Context(), name)
		if log.note(err); err == nil && removed == nil {
			t.Errorf("name %.40q: broke nothing", name)
		}
		err = l.Unlock(t.Context())
		if log.note(err); removed == nil && err != nil {
			t.Errorf("name %.40q: unlock: %v", name, err)
		}
	}
	if accepted < len(hostile())/2 {
		t.Errorf("accepted %d names of %d: the others were not tested", accepted, len(hostile()))
	}
	check("hostile names")
}

func hostileMetadata(t *testing.T, s target) {
	log := newSaid(t)
	c, err := log.open(s.url)
	if err != nil {
		t.Fatal(err)
	}
	rival, err := log.open(s.url)
	if err != nil {
		t.Fatal(err)
	}
	check := s.untouched(t)
	accepted := 0
	for i, text := range hostile() {
		name := fmt.Sprintf("metadata-%d", i)
		l, err := c.Mutex(name, lock.WithMetadata(text)).TryLock(t.Context())
		log.note(err)
		if errors.Is(err, lock.ErrInvalid) {
			if !strings.Contains(err.Error(), "metadata") {
				t.Errorf("metadata %.40q: refused without saying why: %v", text, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("metadata %.40q: want a lock or ErrInvalid, got %v", text, err)
			continue
		}
		accepted++
		_, err = rival.Mutex(name).TryLock(t.Context())
		log.note(err)
		var locked *lock.LockedError
		if !errors.As(err, &locked) || locked.Holder.Metadata != text {
			t.Errorf("metadata %.40q: want it in the refusal, as it was given, got %v", text, err)
		}
		info, err := rival.Inspect(t.Context(), name)
		if log.note(err); !errors.Is(err, errors.ErrUnsupported) && (err != nil || info.Holder == nil || info.Holder.Metadata != text) {
			t.Errorf("metadata %.40q: inspected %+v, %v", text, info.Holder, err)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Errorf("metadata %.40q: unlock: %v", text, err)
		}
	}
	if accepted < 10 {
		t.Errorf("accepted %d texts: the others were not tested", accepted)
	}
	check("hostile metadata")
}

// hostileParameters: a parameter is refused by name, or harmless.
func hostileParameters(t *testing.T, s target) {
	log := newSaid(t)
	check := s.untouched(t)
	for _, param := range append(s.params, "no_such_parameter") {
		for _, value := range hostile() {
			if (param == "table" || param == "domain") && strings.HasPrefix(value, "bystander") {
				continue // that is what the user asks for: whether it is there is another test's
			}
			c, err := log.open(with(s.url, param, value))
			if err != nil {
				if !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), param) && !strings.Contains(err.Error(), "URL") || len(err.Error()) > 10_000 {
					t.Errorf("%s=%.40q: want it refused by name, got %.500v", param, value, err)
				}
				continue
			}
			l, err := c.Mutex("parameter").TryLock(t.Context())
			if log.note(err); err != nil {
				t.Errorf("%s=%.40q: accepted, and then %v", param, value, err)
				continue
			}
			log.note(l.Unlock(t.Context()))
			_ = c.Close(t.Context())
		}
	}
	check("hostile parameters")
}
