package s3lock

import (
	"regexp"
	"strings"
	"testing"
)

var safeKey = regexp.MustCompile(`^lock/[A-Za-z0-9_!-][A-Za-z0-9_.!-]*$`)

// Two names never have one key, each key is one that stores on a file system allow too, and the name is
// found again.
func TestKeys(t *testing.T) {
	long := strings.Repeat("x", 1024)
	hashed := strings.TrimPrefix(Key(DefaultPrefix, long), DefaultPrefix+"/")
	seen := map[string]string{}
	for _, name := range []string{
		"a", "A", "a b", "a/b", "a!2Fb", "a!2fb", "/", ".", "..", ".a", "a.", "a..b", "../../x", "\x00", "é", "\xff\xfe", "!", "!probe", probeName + "x", "!sha256-",
		hashed, long, long + "y", strings.Repeat("x", 200), strings.Repeat("x", 201), strings.Repeat("/", 66), strings.Repeat("/", 67), strings.Repeat("\x00", 1024),
	} {
		key := Key(DefaultPrefix, name)
		if len(key) > len(DefaultPrefix)+1+maxEscaped || !safeKey.MatchString(key) || key == DefaultPrefix+"/"+probeName {
			t.Errorf("name %.40q: the key is %q", name, key)
		}
		if other, ok := seen[key]; ok {
			t.Errorf("%.40q and %.40q have the key %q", name, other, key)
		}
		seen[key] = name
		if got, ok := nameOf(DefaultPrefix, key, metadata(key, name)); !ok || got != name {
			t.Errorf("the key %q is that of %.40q, got %.40q, %v", key, name, got, ok)
		}
	}
}

// Objects that are no locks have no name.
func TestNoKeys(t *testing.T) {
	long := strings.Repeat("x", 1024)
	for _, key := range []string{"lock/", "lock/!probe", "lock/a/b", "lock/a!2", "lock/a!", "lock/!zz", "lock/!41", "lock/a!2f", "other/a", "lock", "lock/" + strings.Repeat("x", 300), Key(DefaultPrefix, long)} {
		if name, ok := nameOf(DefaultPrefix, key, nil); ok {
			t.Errorf("%q is the lock %q", key, name)
		}
	}
	if name, ok := nameOf(DefaultPrefix, Key(DefaultPrefix, long), map[string]string{nameMeta: "YQ"}); ok {
		t.Errorf("a hash with the name of another lock: %q", name)
	}
}
