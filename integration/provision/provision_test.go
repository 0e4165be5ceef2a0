package provision

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { Main(m) }

// ping asks once, and says so when the server does not answer in time.
func ping(t *testing.T, s *Server, within time.Duration) error {
	t.Helper()
	return pingAt(t, s.Addr(), within)
}

func pingAt(t *testing.T, addr string, within time.Duration) error {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1, DialTimeout: within, ReadTimeout: within, ContextTimeoutEnabled: true})
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	return c.Ping(ctx).Err()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestSharedRedis(t *testing.T) {
	for _, flavour := range RedisFlavours() {
		t.Run(flavour, func(t *testing.T) {
			t.Parallel()
			s := Redis(t, flavour)
			must(t, ping(t, s, 5*time.Second))
			if again := Redis(t, flavour); again != s {
				t.Errorf("second call returned another server, %v and %v", again.Addr(), s.Addr())
			}
			if err := s.Kill(); err == nil {
				t.Error("a shared server let a test kill it")
			}
		})
	}
}

func TestControl(t *testing.T) {
	for _, flavour := range RedisFlavours() {
		t.Run(flavour, func(t *testing.T) {
			t.Parallel()
			s := NewRedis(t, flavour, Options{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
			c := redis.NewClient(&redis.Options{Addr: s.Addr()})
			defer c.Close()
			must(t, c.Set(t.Context(), "kept", "value", 0).Err())

			must(t, s.Pause())
			if err := ping(t, s, 300*time.Millisecond); err == nil {
				t.Error("a paused server answered")
			}
			must(t, s.Resume())
			must(t, ping(t, s, 5*time.Second))

			for verb, end := range map[string]func() error{"stop": s.Stop, "kill": s.Kill} {
				must(t, end())
				if err := ping(t, s, time.Second); err == nil {
					t.Errorf("after %s the server answered", verb)
				}
				must(t, s.Restart(t.Context()))
				if got, err := c.Get(t.Context(), "kept").Result(); got != "value" || err != nil {
					t.Errorf("after %s and restart: GET kept = %q, %v; want %q", verb, got, err, "value")
				}
			}
			must(t, s.Pause()) // a paused server is ended all the same
		})
	}
}
