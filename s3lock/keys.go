package s3lock

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/interlock-go/lock/backend"
)

const (
	// DefaultPrefix is the first part of all keys, unless WithPrefix or the URL sets another one.
	DefaultPrefix = "lock"

	maxPrefix = 512
	// maxEscaped is the longest name that is not hashed: stores on a file system allow 255 bytes.
	maxEscaped = 200
	hashMark   = "!sha256-" // "!" and no hexadecimal digit: no escaped name begins so
	probeName  = "!probe"

	plain    = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."
	nameMeta = "name" // user metadata of an object whose key is a hash
)

// Key returns the key of a lock's object. Each byte of the name that is no ASCII letter, digit,
// "-", "_" or ".", and a "." at the begin, is escaped as "!" and two hexadecimal digits. What is longer
// than 200 bytes then is hashed.
func Key(prefix, name string) string {
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; strings.IndexByte(plain, c) < 0 || c == '.' && i == 0 {
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

// metadata returns what an object has beside its value: the name, if the key does not say it.
func metadata(key, name string) map[string]string {
	if !strings.Contains(key, "/"+hashMark) {
		return nil
	}
	return map[string]string{nameMeta: base64.RawURLEncoding.EncodeToString([]byte(name))}
}

// nameOf is the reverse of Key. It returns false for an object that is no lock.
func nameOf(prefix, key string, meta map[string]string) (string, bool) {
	escaped, ok := strings.CutPrefix(key, prefix+"/")
	var name []byte
	if strings.HasPrefix(escaped, hashMark) {
		name, _ = base64.RawURLEncoding.DecodeString(meta[nameMeta])
	} else {
		for i := 0; i < len(escaped); i++ {
			if escaped[i] != '!' {
				name = append(name, escaped[i])
				continue
			}
			c, err := hex.DecodeString(escaped[i+1 : min(i+3, len(escaped))])
			if err != nil || len(c) != 1 {
				return "", false
			}
			name = append(name, c[0])
			i += 2
		}
	}
	return string(name), ok && len(name) > 0 && Key(prefix, string(name)) == key
}

func checkPrefix(prefix string) error {
	bad := prefix == "" || len(prefix) > maxPrefix
	for part := range strings.SplitSeq(prefix, "/") {
		bad = bad || part == "" || part[0] == '.' || strings.Trim(part, plain) != ""
	}
	if bad {
		return backend.Invalid("prefix", prefix, fmt.Sprintf("1 to %d ASCII letters, digits, '-', '_' and '.', in parts separated by '/' of which none begins with '.'", maxPrefix))
	}
	return nil
}
