package pglock

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

var notPrintable = regexp.MustCompile(`[^ -~]|%`)

// escape makes metadata fit into a database of any encoding: each byte that is not
// printable ASCII, and '%', becomes %XX.
func escape(s string) string {
	return notPrintable.ReplaceAllStringFunc(s, func(c string) string {
		return strings.ReplaceAll(fmt.Sprintf(" % X", c), " ", "%")
	})
}

func unescape(s string) string {
	if u, err := url.PathUnescape(s); err == nil {
		s = u
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
