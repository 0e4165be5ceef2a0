package memcachelock

import (
	"strings"
	"testing"
	"time"
)

// Two names never have one key, and each key is allowed by the protocol.
func TestKeys(t *testing.T) {
	long := strings.Repeat("x", 1024)
	hashed := strings.TrimPrefix(Key(DefaultPrefix, long), DefaultPrefix+":")
	seen := map[string]string{}
	for _, name := range []string{"a", "A", "a b", "a\r\nb", "\x00", "é", long, long + "y", hashed, "#", "#a", ":", "a:b", strings.Repeat("x", 245), strings.Repeat("x", 246)} {
		key := Key(DefaultPrefix, name)
		if len(key) > 250 || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r >= 127 }) {
			t.Errorf("name %.40q: the protocol does not allow the key %q", name, key)
		}
		if other, ok := seen[key]; ok {
			t.Errorf("%.40q and %.40q have the key %q", name, other, key)
		}
		seen[key] = name
	}
}

// The server keeps an item for at least as long as it is asked to: its clock has whole seconds and may
// lag by one. It takes no more than 30 days as a relative time.
func TestExpiration(t *testing.T) {
	for d, want := range map[time.Duration]int32{
		0: 1, time.Millisecond: 2, time.Second: 2, time.Second + 1: 3, 90 * time.Second: 91, 40 * 24 * time.Hour: 30 * 24 * 3600,
	} {
		if got := expiration(d); got != want {
			t.Errorf("%v: %d s, want %d", d, got, want)
		}
	}
	if got := expiration(maxTTL + 24*time.Hour); time.Duration(got)*time.Second < maxTTL+24*time.Hour {
		t.Errorf("the greatest TTL with the greatest margin does not fit: %d s", got)
	}
}
