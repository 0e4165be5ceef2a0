package redlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock"
)

// records keeps the log entries about nodes.
type records struct {
	mu   sync.Mutex
	said []string
}

func (*records) Enabled(context.Context, slog.Level) bool { return true }
func (r *records) WithAttrs([]slog.Attr) slog.Handler     { return r }
func (r *records) WithGroup(string) slog.Handler          { return r }
func (r *records) Handle(_ context.Context, rec slog.Record) error {
	if strings.Contains(rec.Message, "redlock node") {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.said = append(r.said, rec.Level.String()+" "+rec.Message)
	}
	return nil
}

func (r *records) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.said)
}

// allVote returns an error while the last entry about a node says that it does not vote.
func (r *records) allVote() error {
	out := map[string]bool{}
	for _, s := range r.all() {
		_, rest, _ := strings.Cut(s, "redlock node ")
		node, state, _ := strings.Cut(rest, " ")
		out[node] = state == "does not vote"
	}
	for node, is := range out {
		if is {
			return fmt.Errorf("%s does not vote", node)
		}
	}
	return nil
}

// TestOutageIsLoggedOnce: the log has one entry for an outage, however many requests fail.
func TestOutageIsLoggedOnce(t *testing.T) {
	t.Parallel() // mostly it waits
	s := newSet(t)
	h := &records{}
	// a pause of the machine is no outage of the other nodes
	c, l := s.clientWith(map[string]string{"restart_delay": "20s", "node_timeout": "5s", "dial_timeout": "10s", "read_timeout": "10s"},
		lock.WithTTL(20*time.Second), lock.WithLogger(slog.New(h)))
	cycles := func() {
		for range 30 {
			l, err := c.Mutex("k").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	cycles()
	l.proxies[2].Cut()
	cycles()
	l.Heal()
	want := []string{
		"WARN lock: redlock node " + l.proxies[2].Addr() + " does not vote",
		"WARN lock: redlock node " + l.proxies[2].Addr() + " votes again",
	}
	s.eventually(t, timeout, "the end of the outage is logged", func() error {
		cycles()
		if len(h.all()) < 2 {
			return fmt.Errorf("%q", h.all())
		}
		return nil
	})
	if got := h.all(); !slices.Equal(got, want) {
		t.Errorf("log: want %q, got %q", want, got)
	}
}
