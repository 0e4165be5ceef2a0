package s3lock

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"

	"github.com/interlock-go/lock/backend"
)

const (
	// DefaultPrefix is the first part of all keys, unless WithPrefix or the URL sets another one.
	DefaultPrefix = "lock"

	maxPrefix = 512 // bytes
	// maxEscaped is the length in bytes of the longest escaped name that is not hashed: stores on a
	// file system allow 255.
	maxEscaped = 200

	// No escaped name begins with one of these, in which "!" precedes no hexadecimal digit.
	hashMark  = "!sha256-"
	probeName = "!probe" // the object that New writes to test the store
	clockName = "!time"  // the object that is written to learn the time of the store

	unescaped = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."
	nameMeta  = "name" // user metadata of an object whose key is a hash
)

// Key returns the key of a lock's object. Each byte of the name that is no ASCII letter, digit,
// "-", "_" or ".", and a "." at the beginning, is escaped as "!" and two hexadecimal digits. If the
// escaped name is longer than 200 bytes, "!sha256-" and the SHA-256 of the name replace it.
func Key(prefix, name string) string {
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; strings.IndexByte(unescaped, c) < 0 || c == '.' && i == 0 {
			fmt.Fprintf(&b, "!%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	if b.Len() > maxEscaped {
		sum := sha256.Sum256([]byte(name))
		return prefix + "/" + hashMark + hex.EncodeToString(sum[:])
	}
	return prefix + "/" + b.String()
}

// metadata returns the user metadata of an object: the name if the key is a hash, otherwise none.
func metadata(key, name string) map[string]string {
	if !strings.Contains(key, "/"+hashMark) {
		return nil
	}
	return map[string]string{nameMeta: base64.RawURLEncoding.EncodeToString([]byte(name))}
}

// nameOf is the reverse of Key. It returns false for an object that is not a lock.
func nameOf(prefix, key string, meta map[string]string) (string, bool) {
	escaped, ok := strings.CutPrefix(key, prefix+"/")
	var name string
	if strings.HasPrefix(escaped, hashMark) {
		raw, _ := base64.RawURLEncoding.DecodeString(meta[nameMeta])
		name = string(raw)
	} else {
		name, _ = url.PathUnescape(strings.ReplaceAll(escaped, "!", "%")) // empty if it fails
	}
	return name, ok && name != "" && Key(prefix, name) == key
}

func checkPrefix(prefix string) error {
	bad := prefix == "" || len(prefix) > maxPrefix
	for part := range strings.SplitSeq(prefix, "/") {
		bad = bad || part == "" || part[0] == '.' || strings.Trim(part, unescaped) != ""
	}
	if bad {
		return backend.Invalid("prefix", prefix, fmt.Sprintf("1 to %d ASCII letters, digits, '-', '_' and '.', "+
			"in parts separated by '/' of which none begins with '.'", maxPrefix))
	}
	return nil
}
