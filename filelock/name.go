package filelock

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	// maxDirName is where a name is hashed instead of spelled out. File systems allow
	// 255 bytes.
	maxDirName = 200
	// maxPrefix leaves room for the hash behind a prefix that is escaped throughout:
	// 3*maxPrefix + 1 + 1 + 64 <= maxDirName.
	maxPrefix = 40

	prefixEnd = '@' // neither it nor hashMark is ever produced by escape
	hashMark  = '~'
)

// dirName maps a prefix and a name to the name of a directory, injectively, even on
// file systems that ignore case or normalize Unicode. A name that is too long is cut, and
// its SHA-256 is appended.
func dirName(prefix, name string) string {
	head := dirPrefix(prefix)
	e := escape(name)
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

// nameOf is the inverse of dirName. For a hashed name it returns exact=false.
func nameOf(prefix, dir string) (name string, exact, ours bool) {
	e, ok := strings.CutPrefix(dir, dirPrefix(prefix))
	if !ok || strings.ContainsRune(e, prefixEnd) {
		return "", false, false
	}
	if strings.ContainsRune(e, hashMark) {
		return "", false, true
	}
	name, ok = unescape(e)
	return name, ok, ok && name != ""
}

// escape keeps lower-case letters, digits and a little punctuation, and writes any
// other byte as % and two lower-case hex digits: upper-case letters because a file
// system may ignore case, a leading dot because "." and ".." are taken.
func escape(s string) string {
	plain := len(s) == 0 || s[0] != '.'
	for i := 0; plain && i < len(s); i++ {
		plain = safe(s[i])
	}
	if plain {
		return s
	}
	b := make([]byte, 0, 3*len(s))
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

// unescape accepts exactly what escape returns.
func unescape(e string) (string, bool) {
	b := make([]byte, 0, len(e))
	for i := 0; i < len(e); i++ {
		if e[i] != '%' {
			b = append(b, e[i])
			continue
		}
		if i+2 >= len(e) {
			return "", false
		}
		c, err := hex.DecodeString(e[i+1 : i+3])
		if err != nil {
			return "", false
		}
		b = append(b, c[0])
		i += 2
	}
	s := string(b)
	return s, escape(s) == e
}
