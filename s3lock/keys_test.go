package s3lock

import (
	"regexp"
	"strings"
	"testing"
)

var safeKey = regexp.MustCompile(`^lock/[A-Za-z0-9_!-][A-Za-z0-9_.!-]*$`)

// TestKeys: Key gives each name a key of its own, which stores on a file system accept too, and nameOf
// returns the name.
func TestKeys(t *testing.T) {
	long := strings.Repeat("x", 1024)
	hashed := strings.TrimPrefix(Key(DefaultPrefix, long), DefaultPrefix+"/")
	seen := map[string]string{}
	for _, name := range []string{
		"a", "A", "a b", "a/b", "a!2Fb", "a!2fb", "/", ".", "..", ".a", "a.", "a..b", "../../x",
		"\x00", "é", "\xff\xfe", "!", "%", "a%2Fb", "a+b", probeName, probeName + "x", hashMark,
		hashed, // looks like the key of long
		long, long + "y", strings.Repeat("\x00", 1024),
		strings.Repeat("x", 200), strings.Repeat("x", 201), // 200 bytes is the longest escaped name that is not hashed
		strings.Repeat("/", 66), strings.Repeat("/", 67), // 198 and 201 bytes when escaped
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

// TestKeysOfOtherObjects: nameOf returns no name for an object that Key and metadata cannot have made.
func TestKeysOfOtherObjects(t *testing.T) {
	long := strings.Repeat("x", 1024)
	for _, key := range []string{
		"lock", "lock/", "lock/a/b", "other/a", "lock/" + probeName,
		"lock/a!", "lock/a!2", "lock/!zz", // not two hexadecimal digits
		"lock/!41", "lock/a!2f", // "A" is not escaped, and digits are in upper case
		"lock/%", "lock/a%2Fb", "lock/%41", "lock/!25%32", "lock/a+b", // "%" and "+" are escaped
		"lock/" + strings.Repeat("x", 300), // too long not to be a hash
		Key(DefaultPrefix, long),           // the name of a hash is in the metadata
	} {
		if name, ok := nameOf(DefaultPrefix, key, nil); ok {
			t.Errorf("%q is the lock %q", key, name)
		}
	}
	metadataOfA := map[string]string{nameMeta: "YQ"} // base64 of "a"
	if name, ok := nameOf(DefaultPrefix, Key(DefaultPrefix, long), metadataOfA); ok {
		t.Errorf("a hash with the name of another lock: %q", name)
	}
}
