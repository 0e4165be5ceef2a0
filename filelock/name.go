package filelock

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"
)

const (
	maxDirName = 200 // where a name is hashed instead of spelled out. File systems allow 255 bytes
	// maxPrefix leaves room for the hash behind a prefix that is escaped throughout: 3*maxPrefix + 1 + 1 + 64 <=
	// maxDirName.
	maxPrefix = 40

	prefixEnd = '@' // neither it nor hashMark is ever produced by escape
	hashMark  = '~'
)

// dirName maps a prefix and a name to the name of a directory, injectively, even on file systems that ignore case or
// normalize Unicode. A name that is too long is cut, and its SHA-256 is appended.
func dirName(prefix, name string) string {
	head, e := dirPrefix(prefix), escape(name)
	if len(head)+len(e) <= maxDirName {
		return head + e
	}
	sum := sha256.Sum256([]byte(name))
	e = e[:maxDirName-len(head)-1-2*len(sum)]
	if i := strings.LastIndexByte(e, '%'); i > len(e)-3 && i >= 0 {
		e = e[:i] // no half escape
	}
	return head + e + string(hashMark) + hex.EncodeToString(sum[:])
}

// dirPrefix is what the directories of a prefix, and no others, begin with.
func dirPrefix(prefix string) string {
	if prefix == "" {
		return ""
	}
	return escape(prefix) + string(prefixEnd)
}

// escape keeps lower-case letters, digits and a little punctuation, and writes any other byte as % and two lower-case
// hex digits: upper-case letters because a file system may ignore case, a leading dot because "." and ".." are taken.
func escape(s string) string {
	b := make([]byte, 0, len(s)+2)
	for i := range len(s) {
		if c := s[i]; safe(c) && (c != '.' || i > 0) {
			b = append(b, c)
		} else {
			b = append(b, '%')
			b = hex.AppendEncode(b, []byte{c})
		}
	}
	return string(b)
}

func safe(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("-_.+=,", c) >= 0
}

// unescape accepts exactly what escape returns for a name.
func unescape(e string) (name string, ok bool) {
	name, err := url.PathUnescape(e)
	return name, err == nil && name != "" && escape(name) == e
}
