package natslock

import (
	"regexp"
	"strings"
	"testing"
)

// Each name has one key, which NATS allows, and each key one name.
func TestKeys(t *testing.T) {
	valid := regexp.MustCompile(`^[-/_=a-zA-Z0-9]+$`)
	seen := map[string]string{}
	for _, name := range []string{"a", "A", "a b", "a\r\nb", "\x00", "é", "a.b", "a/b", "/", ".", "*", ">", "=", "=2E", "=", "a=", "a=4", "%", "%2E", "a+b", "\xff", strings.Repeat("\x00", 1024)} {
		key := Key(name)
		if !valid.MatchString(key) {
			t.Errorf("name %.40q: NATS does not allow the key %q", name, key)
		}
		if other, ok := seen[key]; ok && other != name {
			t.Errorf("%.40q and %.40q have the key %q", name, other, key)
		}
		seen[key] = name
		if back, ok := nameOf(key); !ok || back != name {
			t.Errorf("key %q: name %q, %v, want %q", key, back, ok, name)
		}
	}
	for _, key := range []string{"=", "=4", "=zz", "=2e", "=41", "a.b", "a%41", "%2E", "%3D2E", "%", "=2", "a+b"} {
		if name, ok := nameOf(key); ok {
			t.Errorf("key %q has the name %q", key, name)
		}
	}
}
